"""Policies that plan in rounds: leases, sizes, and the laws that hold of whatever they decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.live_policy.decide import LiveDecision, decide
from perdure.live_policy.ended_jobs import EndedJobs
from perdure.live_policy.policies import ROUNDS
from perdure.live_policy.preemptions import PolicyMemory
from perdure.live_policy.settings import PolicySettings
from perdure.live_policy.sizes import allowed_sizes
from perdure.model.jobs import JobSize, PolicyConsent
from perdure.waits.queue import QueuedJob, QueuedNode
from tests.copying import replace
from tests.live_policy.queues import GPUS, NOW_S, look, running, waiting

ROUND_S = 60.0
BEGIN_S = NOW_S // ROUND_S * ROUND_S
THEMIS = PolicySettings("themis", lease_s=600.0, round_s=ROUND_S, least_run_s=60.0)
SIA = PolicySettings("sia", round_s=ROUND_S, least_run_s=60.0)


def decided(*jobs: QueuedJob, settings: PolicySettings = THEMIS, memory: PolicyMemory | None = None) -> LiveDecision:
    return decide(look(*jobs), {}, settings, memory or PolicyMemory())


def leased(ended_s: float, **more: object) -> QueuedJob:
    """A job on the whole of a node whose lease ended so long before the round began."""
    return replace(running("1", 0, ("n1",)), start_s=BEGIN_S - 600 - ended_s, submit_s=BEGIN_S - 700, **more)


OTHER = running("2", 5000, ("n2",), consent=PolicyConsent.NONE)


@pytest.mark.parametrize(
    ("ended_s", "makes_room"),
    [(0.0, True), (ROUND_S - 1, True), (ROUND_S, False), (-1.0, False), (-570.0, False), (400.0, False)],
)
def test_gpus_are_on_offer_in_the_round_after_a_lease(ended_s: float, makes_room: bool) -> None:
    found = decided(leased(ended_s, walltime_s=9e6), OTHER, waiting("3", 9, gpus=4, walltime_s=600.0))
    assert bool(found.preemptions) is makes_room
    assert found.kept.get("1", "").startswith("its lease goes on for") is not makes_room


def test_the_auction_serves_whoever_is_worst_off() -> None:
    held = running("1", 9, ("n1",), consent=PolicyConsent.NONE)
    hurries = waiting("3", 9, gpus=4, walltime_s=60.0)
    has_time = waiting("4", 9, gpus=4, walltime_s=9e6)
    for jobs in ((hurries, has_time), (has_time, hurries)):
        assert [job.job_id for job in decided(held, *jobs).order if job.starts] == ["3"]


def test_under_sia_a_job_keeps_its_gpus_for_a_round() -> None:
    job = running("1", ROUND_S - 1, ("n1",), start_s=NOW_S - 59)
    found = decided(job, OTHER, waiting("3", 9), settings=replace(SIA, least_run_s=0.0))
    assert found.kept["1"] == "it has run 59 s of a round of 60 s"


def test_sia_leaves_a_gang_alone_that_is_no_configuration() -> None:
    found = decided(waiting("3", 9, gpus=3), settings=SIA)
    assert found.left == {"3": "it asks for 3 GPUs, and sia knows powers of two on a node, or whole nodes"}


def test_a_job_of_several_sizes_gets_what_is_free() -> None:
    choosy = waiting("3", 9, gpus=1, asks=JobSize(1, 1, 1), sizes=(1, 2, 4))
    found = decided(OTHER, running("1", 9, ("n1",), gpus=2, consent=PolicyConsent.NONE), choosy)
    assert [(each.job_id, each.size) for each in found.sizes] == [("3", JobSize(1, 1, 2))]


def test_sia_starts_on_the_smallest_size_and_doubles_what_was_seen() -> None:
    choosy = waiting("3", 9, gpus=4, asks=JobSize(1, 1, 4), sizes=(1, 2, 4))
    first = decided(choosy, settings=SIA)
    assert [each.size for each in first.sizes] == [JobSize(1, 1, 1)]
    then = decided(choosy, settings=SIA, memory=PolicyMemory(past=EndedJobs(most_gpus={"3": 1})))
    assert [each.size for each in then.sizes] == [JobSize(1, 1, 2)]


NODES_OF_TWO_KINDS = (QueuedNode("n1", ("main",), gpus=8), QueuedNode("n2", ("main",), gpus=4))


@pytest.mark.parametrize(
    ("sizes", "asks", "before", "allowed"),
    [
        ((1, 4, 6, 8, 16), JobSize(1, 1, 1), None, {1: (1, 1), 4: (1, 4), 8: (2, 4)}),
        ((), JobSize(1, 3, 2), None, {2: (1, 2), 4: (2, 2)}),
        ((), JobSize(2, 2, 2), JobSize(1, 2, 2), {2: (1, 2), 4: (2, 2)}),
        ((6, 8), JobSize(1, 1, 1), None, {}),
        ((1, 2), None, None, {}),
    ],
)
def test_sizes_fit_the_nodes_that_a_job_may_have(
    sizes: tuple[int, ...], asks: JobSize | None, before: JobSize | None, allowed: dict[int, tuple[int, int]]
) -> None:
    found = allowed_sizes(waiting("3", 9, sizes=sizes, asks=asks), before, NODES_OF_TWO_KINDS)
    assert {gpus: (size.nodes, size.gpus_per_node) for gpus, size in found.items()} == allowed
    assert all(size.most_nodes == size.nodes for size in found.values())
    assert allowed_sizes(waiting("3", 9, sizes=sizes, asks=asks), before, ()) == {}


def test_what_a_job_asked_for_at_first_is_told_though_its_size_was_chosen_before() -> None:
    asked = JobSize(1, 1, 4)
    job = waiting("3", 9, gpus=4, asks=JobSize(1, 1, 1), sizes=(1, 2, 4))
    (found,) = decided(job, memory=PolicyMemory(sizes={"3": asked})).sizes
    assert (found.before, found.seen) == (asked, JobSize(1, 1, 1))


def test_a_job_that_runs_is_as_large_as_it_is_whatever_its_owner_allows() -> None:
    job = running("1", 500, ("n1",), gpus=3, asks=JobSize(1, 1, 3), sizes=(1, 3, 4))
    found = decided(job, settings=SIA)
    assert (found.sizes, list(found.left)) == ((), ["1"])
    assert decided(job).sizes == ()


def test_a_range_of_nodes_is_made_one_number_and_what_was_asked_is_told() -> None:
    asked = JobSize(1, 2, GPUS)
    found = decided(waiting("3", 9, gpus=GPUS, asks=asked))
    assert [(each.size, each.before) for each in found.sizes] == [(JobSize(2, 2, GPUS), asked)]


def test_a_job_is_expected_to_run_as_long_as_those_that_ran_longer() -> None:
    past = EndedJobs(shares=[0.1, 0.5, 0.9])
    assert past.expected_s(100.0, 0.0) == pytest.approx(50.0)
    assert past.expected_s(100.0, 20.0) == pytest.approx(70.0)
    assert past.expected_s(100.0, 95.0) == 100.0
    assert past.expected_s(None, 95.0) == 100.0


consents = st.sampled_from(list(PolicyConsent))
owners_sizes = st.sets(st.sampled_from([1, 2, 4, 8]), min_size=2).map(lambda sizes: tuple(sorted(sizes)))


@st.composite
def waiting_jobs(draw: st.DrawFn) -> QueuedJob:
    gpus, most = draw(st.sampled_from([1, 2, 3, 4])), draw(st.integers(1, 2))
    return waiting(
        str(draw(st.integers(10, 40))), draw(st.integers(1, 50)), gpus, consent=draw(consents),
        asks=draw(st.sampled_from([None, JobSize(1, most, gpus)])), sizes=draw(st.one_of(st.just(()), owners_sizes)),
        walltime_s=draw(st.sampled_from([None, 600.0, 9e5])),
    )  # fmt: skip


@st.composite
def running_jobs(draw: st.DrawFn) -> list[QueuedJob]:
    return [
        running(
            name, draw(st.sampled_from([5.0, 59.0, 610.0, 650.0, 1230.0, 7000.0])), (node,),
            draw(st.sampled_from([2, 4])), consent=draw(consents), may_requeue=draw(st.booleans()),
        )
        for name, node in (("1", "n1"), ("2", "n2"))
    ]  # fmt: skip


def own_id(job: QueuedJob) -> str:
    return job.job_id


queues: st.SearchStrategy[list[QueuedJob]] = st.lists(waiting_jobs(), max_size=6, unique_by=own_id)
memories = st.builds(
    PolicyMemory,
    preempted=st.dictionaries(st.sampled_from(["1", "2"]), st.integers(0, 4)),
    preempted_s=st.lists(st.floats(NOW_S - 4000, NOW_S), max_size=22),
    checkpoint_s=st.dictionaries(st.sampled_from(["1", "2"]), st.floats(NOW_S - 2000, NOW_S)),
)
settings = st.builds(
    PolicySettings, st.sampled_from(ROUNDS), lease_s=st.just(600.0), round_s=st.just(ROUND_S),
    least_run_s=st.sampled_from([0.0, 60.0]), needs_checkpoint=st.booleans(),
)  # fmt: skip


@given(running_jobs(), queues, memories, settings)
def test_laws_of_whatever_is_decided(
    ran: list[QueuedJob], jobs: list[QueuedJob], memory: PolicyMemory, given_settings: PolicySettings
) -> None:
    found = decided(*ran, *jobs, settings=given_settings, memory=memory)
    there = {job.job_id: job for job in (*ran, *jobs)}
    opted_in = {job_id for job_id, job in there.items() if job.consent is not PolicyConsent.NONE}
    touched = {change.job_id for change in found.changes} | {change.job_id for change in found.sizes}
    assert touched | {job.job_id for job in found.order} <= opted_in
    for each in found.sizes:
        job = there[each.job_id]
        asked = job.asks
        assert asked is not None
        allowed = job.sizes or tuple(count * asked.gpus_per_node for count in range(asked.nodes, asked.most_nodes + 1))
        assert each.size.gpus in allowed
        assert each.size.most_nodes == each.size.nodes
        assert each.before == asked
    hour = sum(at_s > NOW_S - 3600 for at_s in memory.preempted_s)
    assert not found.preemptions or len(found.preemptions) + hour <= given_settings.preemptions_per_hour
    for preemption in found.preemptions:
        job = there[preemption.job_id]
        assert job.consent is PolicyConsent.PREEMPT
        assert job.may_requeue
        assert memory.preempted.get(job.job_id, 0) < given_settings.preemptions_per_job
        assert job.start_s is not None
        assert NOW_S - job.start_s >= given_settings.least_run_s
        saved_s = memory.checkpoint_s.get(job.job_id)
        known = saved_s is not None and saved_s >= job.start_s
        assert known or not given_settings.needs_checkpoint
        assert not known or saved_s is None or NOW_S - saved_s <= given_settings.checkpoint_age_s


@given(running_jobs(), queues, settings)
def test_a_second_decision_on_what_the_first_did_changes_nothing(
    ran: list[QueuedJob], jobs: list[QueuedJob], given_settings: PolicySettings
) -> None:
    first = decided(*ran, *jobs, settings=given_settings)
    sizes = {each.job_id: each for each in first.sizes}
    nice = {each.job_id: each for each in first.changes}

    def after(job: QueuedJob) -> QueuedJob:
        if (change := nice.get(job.job_id)) is not None:
            job = replace(job, nice=change.nice, priority=job.priority + job.nice - change.nice)
        if (size := sizes.get(job.job_id)) is not None:
            job = replace(job, asks=size.size, gpus=size.size.gpus, nodes=size.size.nodes)
        return job

    done = [after(job) for job in (*ran, *jobs)]
    memory = PolicyMemory(
        nice={job_id: each.before for job_id, each in nice.items()},
        sizes={job_id: each.before for job_id, each in sizes.items()},
        on_their_way=[each.job_id for each in first.preemptions],
    )
    running_on = [replace(job, consent=PolicyConsent.ORDER) for job in ran]
    base = decided(*running_on, *jobs, settings=given_settings)
    if not first.preemptions:
        again = decided(*done, settings=given_settings, memory=memory)
        assert (again.sizes, again.changes, again.preemptions) == ((), (), ())
    assert base.preemptions == ()
