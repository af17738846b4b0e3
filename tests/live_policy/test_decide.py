"""What is decided from a look: who is touched, whose place changes, who makes room and who does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ConfigError
from perdure.live_policy.decide import LiveDecision, decide
from perdure.live_policy.policies import LIVE, live_policy, thinned
from perdure.live_policy.preemptions import PolicyMemory
from perdure.live_policy.settings import PolicySettings
from perdure.model.jobs import JobState, PolicyConsent
from perdure.scheduling.slurm.site_limits import GPUS, AssociationLimits, QosLimits, SiteLimits, TresLimits
from perdure.waits.queue import QueuedJob, QueuedPartition
from tests.copying import replace
from tests.live_policy.queues import NOW_S, look, running, waiting

LAS = PolicySettings("las-2d", first_limit_s=100.0, second_limit_s=1000.0, least_run_s=60.0)
OLD, YOUNG = running("1", 500, ("n1",)), running("2", 30, ("n2",))


def decided(*jobs: QueuedJob, settings: PolicySettings = LAS, memory: PolicyMemory | None = None) -> LiveDecision:
    return decide(look(*jobs), {}, settings, memory or PolicyMemory())


def test_a_short_job_takes_the_place_of_one_that_was_served() -> None:
    found = decided(OLD, YOUNG, waiting("3", 9, gpus=4))
    assert [(each.job_id, each.starts) for each in found.preemptions] == [("1", "3")]
    assert found.kept == {"2": "it has run 30 s, and may run for at least 60 s"}


@pytest.mark.parametrize(
    ("job", "memory", "why"),
    [
        (replace(OLD, consent=PolicyConsent.ORDER), PolicyMemory(), "it did not allow it"),
        (replace(OLD, may_requeue=False), PolicyMemory(), "it may not be put back (--no-requeue, or not a batch job)"),
        (OLD, PolicyMemory(preempted={"1": 3}), "it was put back 3 times already"),
        (OLD, PolicyMemory(preempted_s=[NOW_S - 1] * 20), "20 jobs were put back in this hour already"),
        (OLD, PolicyMemory(on_their_way=["1"]), "it is being put back"),
        (
            replace(OLD, start_s=NOW_S - 5000),
            PolicyMemory(checkpoint_s={"1": NOW_S - 901}),
            "its last checkpoint is 901 s old",
        ),
    ],
)
def test_a_job_that_may_not_be_put_back_runs_on(job: QueuedJob, memory: PolicyMemory, why: str) -> None:
    found = decided(job, replace(YOUNG, consent=PolicyConsent.NONE), waiting("3", 9, gpus=4), memory=memory)
    assert (found.preemptions, found.kept) == ((), {"1": why})


def test_without_a_known_checkpoint_a_site_may_keep_jobs() -> None:
    careful = PolicySettings("las-2d", first_limit_s=100.0, least_run_s=60.0, needs_checkpoint=True)
    jobs = (OLD, replace(YOUNG, consent=PolicyConsent.NONE), waiting("3", 9, gpus=4))
    assert decided(*jobs, settings=careful).kept == {"1": "no checkpoint of this start is known"}
    saved = PolicyMemory(checkpoint_s={"1": NOW_S - 10})
    assert [each.job_id for each in decided(*jobs, settings=careful, memory=saved).preemptions] == ["1"]


def test_nobody_makes_room_that_a_job_of_others_would_take() -> None:
    other = waiting("4", 100, gpus=4, consent=PolicyConsent.NONE)
    assert decided(OLD, YOUNG, waiting("3", 9, gpus=4), other).preemptions == ()
    assert decided(OLD, YOUNG, waiting("3", 9, gpus=4), replace(other, priority=1)).preemptions != ()


def test_a_job_of_several_partitions_comes_first_only_in_those_of_a_higher_tier() -> None:
    """On what is freed in the lower one, a job of others that came earlier starts."""
    other = waiting("3", 9, gpus=4, consent=PolicyConsent.NONE)
    own = waiting("4", 9, gpus=4, partitions=("quick", "main"))
    there = look(OLD, YOUNG, other, own)
    parts = (*there.queue.partitions, QueuedPartition("quick", priority_tier=20))
    seen = replace(there, queue=replace(there.queue, partitions=parts))
    assert decide(seen, {}, LAS, PolicyMemory()).preemptions == ()


@pytest.mark.parametrize("reason", ["Dependency", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail"])
def test_nobody_makes_room_for_a_job_that_would_not_start(reason: str) -> None:
    assert decided(OLD, YOUNG, waiting("3", 9, gpus=4, reason=reason)).preemptions == ()


def lab(**limits: Any) -> PolicyMemory:
    return PolicyMemory(limits=SiteLimits((), (AssociationLimits("lab", limits=TresLimits(**limits)),)))


@pytest.mark.parametrize(("most", "starts"), [(3, []), (4, ["3"]), (7, ["3"]), (8, ["3", "4"])])
def test_nobody_makes_room_for_more_than_an_account_may_have(most: int, starts: list[str]) -> None:
    jobs = (waiting("3", 9, gpus=4, account="lab"), waiting("4", 8, gpus=4, account="lab"))
    other = running("2", 700, ("n2",))
    found = decided(OLD, other, *jobs, memory=lab(grp_tres={GPUS: most}))
    assert [job.job_id for job in found.order if job.starts] == starts
    assert len(found.preemptions) == len(starts)


def test_an_account_gets_no_more_jobs_than_it_may_have_though_none_of_them_runs_yet() -> None:
    jobs = (waiting("3", 9, gpus=4, account="lab"), waiting("4", 8, gpus=4, account="lab"))
    found = decided(OLD, running("2", 700, ("n2",)), *jobs, memory=lab(grp_jobs=1))
    assert [(each.job_id, each.starts) for each in found.preemptions] == [("1", "3")]


def test_a_limit_of_a_qos_holds_for_the_jobs_of_that_qos_alone() -> None:
    jobs = (waiting("3", 9, gpus=4, qos="wide"), waiting("4", 8, gpus=4, qos="tight"))
    limits = SiteLimits((QosLimits("tight", limits=TresLimits(grp_jobs=0)),))
    found = decided(OLD, running("2", 700, ("n2",)), *jobs, memory=PolicyMemory(limits=limits))
    assert [job.job_id for job in found.order if job.starts] == ["3"]


def test_a_limit_on_each_user_counts_the_jobs_of_that_user() -> None:
    limits = SiteLimits((QosLimits("tight", limits=TresLimits(jobs_per_user=1)),))
    jobs = [waiting(str(at), 9, gpus=1, qos="tight", user=user) for at, user in enumerate(("mira", "jonas", "mira"), 3)]
    found = decided(*jobs, memory=PolicyMemory(limits=limits))
    assert [job.job_id for job in found.order if job.starts] == ["3", "4"]


def test_a_limit_of_a_partitions_qos_holds_in_that_partition_alone() -> None:
    limits = SiteLimits((QosLimits("gate", limits=TresLimits(grp_jobs=0)),))
    there = look(waiting("3", 9, partitions=("other",)), waiting("4", 9))
    parts = (QueuedPartition("main"), QueuedPartition("other", qos="gate"))
    found = decide(replace(there, queue=replace(there.queue, partitions=parts)), {}, LAS, PolicyMemory(limits=limits))
    assert [job.job_id for job in found.order if job.starts] == ["4"]


def test_a_job_makes_room_for_one_that_may_use_its_nodes() -> None:
    ran = OLD, running("2", 700, ("n2",), partitions=("other",))
    found = decided(*ran, waiting("3", 9, gpus=4), waiting("4", 8, gpus=4, partitions=("other",)))
    assert {(each.job_id, each.starts) for each in found.preemptions} == {("1", "3"), ("2", "4")}


def test_whom_the_policy_wants_least_uses_up_what_is_left_of_the_hour() -> None:
    apart = replace(LAS, second_limit_s=2500.0)  # one has had 2,000 GPU-seconds, the other 2,800
    memory = PolicyMemory(preempted_s=[NOW_S - 1] * (apart.preemptions_per_hour - 1))
    jobs = (waiting("3", 9, gpus=4), waiting("4", 8, gpus=4))
    for first, second in (("n1", "n2"), ("n2", "n1")):
        ran = running("1", 500, (first,)), running("2", 700, (second,))
        assert [each.job_id for each in decided(*ran, *jobs, settings=apart, memory=memory).preemptions] == ["2"]


def test_a_job_beyond_its_accounts_limit_leaves_its_place_to_another() -> None:
    jobs = (waiting("3", 9, gpus=4, account="lab"), waiting("4", 8, gpus=4, account="far"))
    found = decided(OLD, YOUNG, *jobs, memory=lab(grp_tres={GPUS: 3}))
    assert [(each.job_id, each.starts) for each in found.preemptions] == [("1", "4")]


def test_what_makes_room_is_given_back_to_its_account() -> None:
    old = replace(OLD, account="lab")
    found = decided(old, YOUNG, waiting("3", 9, gpus=4, account="lab"), memory=lab(grp_jobs=1))
    assert [(each.job_id, each.starts) for each in found.preemptions] == [("1", "3")]


def test_a_gang_that_finds_no_room_keeps_nobody_from_starting() -> None:
    taken: dict[str, Any] = {"gpus": 2, "consent": PolicyConsent.NONE}
    parts = running("1", 30, ("n1",), **taken), running("2", 30, ("n2",), **taken)
    found = decided(*parts, waiting("3", 9, gpus=4), waiting("4", 9, gpus=2), settings=PolicySettings("fjf"))
    assert [(job.job_id, job.starts) for job in found.order] == [("3", False), ("4", True)]
    wanted = {job.job_id: job.wanted for job in found.order}
    assert wanted["4"] > wanted["3"]


def test_a_policy_that_does_not_preempt_puts_nobody_back() -> None:
    fifo = PolicySettings("fifo", least_run_s=0.0)
    found = decided(OLD, YOUNG, waiting("3", 1, gpus=4), waiting("4", 9, gpus=4), settings=fifo)
    assert found.preemptions == ()
    assert [(job.job_id, job.place, job.place_seen) for job in found.order] == [("3", 1, 2), ("4", 2, 1)]


def test_the_jobs_of_a_tier_are_put_in_order_among_themselves() -> None:
    found = decided(waiting("3", 1), waiting("4", 9), settings=PolicySettings("fifo"))
    change = found.changes[0]
    assert (change.job_id, change.nice, change.before, change.seen) == ("3", -8, 0, 0)


def test_what_a_job_had_before_is_remembered() -> None:
    lowered = replace(waiting("3", 1), nice=50)
    found = decided(lowered, waiting("4", 9), settings=PolicySettings("fifo"), memory=PolicyMemory(nice={"3": 7}))
    assert (found.changes[0].nice, found.changes[0].before) == (24, 7)


consents = st.sampled_from(list(PolicyConsent))
pending = st.builds(
    lambda number, priority, gpus, consent, state: waiting(
        str(number), priority, gpus, consent=consent, state=state
    ),
    st.integers(10, 40), st.integers(0, 50), st.integers(0, 4), consents,
    st.sampled_from([JobState.PENDING, JobState.HELD]),
)  # fmt: skip
queues = st.lists(pending, max_size=8, unique_by=lambda job: job.job_id)


@given(
    queues,
    st.lists(st.sampled_from(["lab", "far"]), min_size=10, max_size=10),
    st.integers(0, 12),
    st.sampled_from(LIVE),
)
def test_no_plan_gives_an_account_more_than_it_may_have(
    jobs: list[QueuedJob], accounts: list[str], most: int, name: str
) -> None:
    own = zip((replace(OLD, start_s=NOW_S - 700), running("2", 600, ("n2",)), *jobs), accounts, strict=False)
    there = [replace(job, account=account) for job, account in own]
    settings = PolicySettings(name, least_run_s=0.0, first_limit_s=100.0, lease_s=1.0, round_s=1.0)
    found = decided(*there, settings=settings, memory=lab(grp_tres={GPUS: most}))
    gone = {each.job_id for each in found.preemptions}
    starts = [job.gpus for job in there if job.job_id in {each.job_id for each in found.order if each.starts}
              and job.account == "lab"]  # fmt: skip
    runs = [job.gpus for job in there if job.is_running and job.job_id not in gone and job.account == "lab"]
    assert not starts or sum(starts) + sum(runs) <= most


@given(queues, consents, consents, st.sampled_from(LIVE))
def test_a_job_that_did_not_opt_in_is_never_touched(
    jobs: list[QueuedJob], one: PolicyConsent, two: PolicyConsent, name: str
) -> None:
    ran = (replace(OLD, consent=one), replace(YOUNG, consent=two, start_s=NOW_S - 300))
    found = decided(*ran, *jobs, settings=PolicySettings(name, least_run_s=0.0, first_limit_s=100.0))
    allowed = {job.job_id for job in (*ran, *jobs) if job.consent is not PolicyConsent.NONE}
    assert {change.job_id for change in found.changes} <= allowed
    assert {job.job_id for job in found.order} <= allowed
    preemptable = {job.job_id for job in ran if job.consent is PolicyConsent.PREEMPT}
    assert {each.job_id for each in found.preemptions} <= preemptable
    assert {each.starts for each in found.preemptions} <= {job.job_id for job in found.order if job.starts}


@given(queues)
def test_others_change_nothing_of_the_order(jobs: list[QueuedJob]) -> None:
    own = [job for job in jobs if job.consent is not PolicyConsent.NONE]
    assert decided(*jobs).changes == decided(*own).changes


def test_a_partition_takes_part_by_the_sites_word() -> None:
    job = waiting("3", 9, consent=PolicyConsent.NONE, qos="low")
    assert [each.job_id for each in decided(job, settings=replace(LAS, partitions=("main",))).order] == ["3"]
    both = replace(job, partitions=("main", "other"))
    assert decided(both, settings=replace(LAS, partitions=("main",))).order == ()
    assert [each.consent for each in decided(job, settings=replace(LAS, preempt_qos=("low",))).order] == ["preempt"]


def test_a_job_whose_partitions_are_not_known_is_none_of_a_partition() -> None:
    job = waiting("3", 9, consent=PolicyConsent.NONE, partitions=())
    assert decided(job, settings=replace(LAS, partitions=("main",))).order == ()


def test_limits_are_as_wide_as_what_they_rest_on() -> None:
    assert thinned([float(at) for at in range(8, 0, -1)], 4) == (2.0, 4.0, 6.0, 8.0)
    asked = PolicySettings("las", every_s=20.0, first_limit_s=900.0, second_limit_s=100.0)
    assert [asked.limits(look_s).every_s for look_s in (5.0, 30.0)] == [20.0, 30.0]
    assert asked.queue_limits == (900.0, 900.0)


def test_a_checkpoint_of_an_earlier_start_keeps_no_job() -> None:
    jobs = (replace(OLD, start_s=NOW_S - 5000), replace(YOUNG, consent=PolicyConsent.NONE), waiting("3", 9, gpus=4))
    for saved_s, kept in ((NOW_S - 5001, False), (NOW_S - 4999, True), (NOW_S + 5, False)):
        found = decided(*jobs, memory=PolicyMemory(checkpoint_s={"1": saved_s}))
        assert (found.preemptions == ()) is kept


def test_an_owners_word_counts_only_where_the_site_lets_it() -> None:
    assert decided(waiting("3", 9), settings=replace(LAS, owners=False)).order == ()


@pytest.mark.parametrize("name", ["srtf", "srsf", "sjf", "gavel", "pollux", "easy", "philly", "nothing"])
def test_a_policy_that_cannot_be_in_force_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError) as err:
        live_policy(PolicySettings(name))
    assert "\n" not in str(err.value)


def test_an_index_without_a_past_gives_way_to_attained_service() -> None:
    found = decided(waiting("3", 9), settings=PolicySettings("gittins-2d"))
    assert found.policy == "las-2d"
    assert found.remarks == ("0 past jobs are known, and gittins-2d needs 10: las-2d orders until then",)
    known = PolicyMemory(services=[float(at) for at in range(10)])
    assert decided(waiting("3", 9), settings=PolicySettings("gittins-2d"), memory=known).policy == "gittins-2d"


def test_where_a_nice_does_not_shift_a_priority_nothing_is_decided() -> None:
    with pytest.raises(ConfigError, match="priority/basic"):
        decide(look(waiting("3", 9), prioritytype="priority/basic"), {}, LAS, PolicyMemory())
