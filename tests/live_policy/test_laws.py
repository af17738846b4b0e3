"""Laws of whatever a policy in force decides, on queues of every kind: each is computed a second time, plainly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.live_policy.decide import LiveDecision, OrderedJob, decide
from perdure.live_policy.policies import LIVE
from perdure.live_policy.preemptions import PolicyMemory
from perdure.live_policy.settings import PolicySettings
from perdure.model.jobs import JobSize, JobState, PolicyConsent
from perdure.scheduling.slurm.site_limits import (
    CPUS,
    GPUS,
    NODES,
    AssociationLimits,
    QosLimits,
    SiteLimits,
    TresLimits,
)
from perdure.waits.limits import amount, counts_for, limits_on
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueueLook
from tests.copying import replace
from tests.live_policy.queues import CONFIG, NOW_S, running, waiting

PARTITIONS = (QueuedPartition("main"), QueuedPartition("quick", priority_tier=5, qos="gate"), QueuedPartition("far"))
TIERS = {each.name: each.priority_tier for each in PARTITIONS}
WHERE = {"n1": ("main",), "n2": ("main", "quick"), "n3": ("far",)}
STARTABLE = ("", "None", "Priority", "Resources")
PASSED_OVER = ("fjf", "fewest-gpus", "las", "las-2d")  # who finds no room lets others start


class SeenWorld(NamedTuple):
    """What a decision is made from."""

    look: QueueLook
    history: dict[str, list[tuple[float, float]]]
    settings: PolicySettings
    memory: PolicyMemory

    def decided(self) -> LiveDecision:
        return decide(*self)

    @property
    def queue(self) -> Queue:
        return self.look.queue

    @property
    def jobs(self) -> dict[str, QueuedJob]:
        return {job.job_id: job for job in self.queue.jobs}


accounts, users = st.sampled_from(["lab", "far"]), st.sampled_from(["mira", "jonas"])
qualities = st.sampled_from(["", "tight"])


FLAWS: tuple[dict[str, Any], ...] = (
    {"state": JobState.HELD}, {"priority": 0}, {"reason": "Dependency"}, {"eligible_s": NOW_S + 1}, {"gpus": 0},
    {"eligible_s": None}, {"parts": 2}, {"consent": PolicyConsent.NONE}, {"consent": PolicyConsent.NONE},
)  # fmt: skip
FLAWS_OF_RUNNING: tuple[dict[str, Any], ...] = (
    {"state": JobState.SUSPENDED}, {"may_requeue": False}, {"consent": PolicyConsent.ORDER},
    {"consent": PolicyConsent.NONE}, {"start_s": NOW_S - 30},
)  # fmt: skip


def flawed(job: QueuedJob, flaws: Sequence[dict[str, Any]], draw: st.DrawFn) -> QueuedJob:
    """Two of three are as they were."""
    at = draw(st.integers(0, 3 * len(flaws) - 1))
    return replace(job, **flaws[at]) if at < len(flaws) else job


@st.composite
def waiting_jobs(draw: st.DrawFn) -> QueuedJob:
    number = str(draw(st.integers(10, 40)))
    gpus, nodes = draw(st.sampled_from([(1, 1), (2, 1), (4, 1), (4, 1), (4, 2), (8, 2)]))
    job = waiting(
        number, draw(st.sampled_from([1, 5, 5, 9, 30, 40])), gpus, nodes=nodes, cpus=draw(st.integers(1, 3)),
        nice=draw(st.sampled_from([0, 0, 3, -3])), account=draw(accounts), user=draw(users), qos=draw(qualities),
        partitions=draw(st.sampled_from([("main",), ("main",), ("quick",), ("far",), ("main", "quick")])),
        reason=draw(st.sampled_from(STARTABLE)), eligible_s=draw(st.sampled_from([NOW_S - 9, NOW_S])),
        excluded=draw(st.sampled_from([(), (), (), ("n1",)])), required=draw(st.sampled_from([(), (), (), ("n2",)])),
        asks=draw(st.sampled_from([None, JobSize(nodes, 3, gpus // nodes, 2, 3)])),
        sizes=draw(st.sampled_from([(), (), (1, 2, 4), (1, 8), (2, 4, 8)])),
    )  # fmt: skip
    return flawed(replace(job, job_id=number + draw(st.sampled_from([*[""] * 8, "_3", "+0"]))), FLAWS, draw)


@st.composite
def running_jobs(draw: st.DrawFn, sizes: Sequence[int]) -> list[QueuedJob]:
    found = [
        running(
            str(at), draw(st.sampled_from([300.0, 700.0, 5000.0])), (f"n{at}",),
            size - draw(st.sampled_from([0, 0, 1])),
            account=draw(accounts), user=draw(users), partitions=WHERE[f"n{at}"][:1], qos=draw(qualities),
            priority=draw(st.sampled_from([0, 1, 8, 50])), cpus=draw(st.integers(1, 3)),
            asks=draw(st.sampled_from([None, JobSize(1, 2, 1)])), sizes=draw(st.sampled_from([(), (1, 2, 4)])),
        )
        for at, size in enumerate(sizes, 1)
    ]  # fmt: skip
    return [flawed(job, FLAWS_OF_RUNNING, draw) for job in found if draw(st.integers(0, 3))]


def number_of(job: QueuedJob) -> str:
    return job.job_id[:2]


def some(values: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from([GPUS, CPUS, NODES]), values, max_size=1)


limits = st.builds(
    TresLimits, grp_tres=some(st.integers(1, 8)), grp_jobs=st.sampled_from([None, None, 1, 2]),
    tres_per_user=some(st.integers(1, 8)), jobs_per_user=st.sampled_from([None, None, 1]),
)  # fmt: skip
site_limits = st.one_of(
    st.just(SiteLimits()),
    st.builds(
        lambda qos, gate, lab, own, whole: SiteLimits(
            (QosLimits("tight", limits=qos), QosLimits("gate", limits=gate)),
            (
                AssociationLimits("all", limits=whole), AssociationLimits("lab", parent="all", limits=lab),
                AssociationLimits("lab", "mira", limits=own), AssociationLimits("far", parent="all"),
            ),
        ),
        limits, limits, limits, limits, limits,
    ),
    st.builds(lambda qos: SiteLimits((QosLimits("tight", limits=qos),)), limits),
)  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn) -> SeenWorld:
    sizes = draw(st.sampled_from([(4, 4, 4), (4, 4, 2), (2, 8, 4)]))
    nodes = tuple(
        QueuedNode(name, where, draw(st.sampled_from([True] * 5 + [False])), gpus=size, cpus=8)
        for (name, where), size in zip(WHERE.items(), sizes, strict=True)
    )
    ran = draw(running_jobs(sizes))
    came = draw(st.lists(waiting_jobs(), min_size=2, max_size=6, unique_by=number_of))
    jobs = tuple(draw(st.permutations([*ran, *came])))
    some_of = st.sampled_from([job.job_id for job in jobs])
    name = draw(st.sampled_from([*LIVE, "las", "las-2d", "las-2d"]))
    asked = PolicySettings(
        name, first_limit_s=100.0, second_limit_s=1000.0, least_run_s=draw(st.sampled_from([0.0, 60.0])),
        changes=draw(st.sampled_from([1, 200, 200])), lease_s=600.0, preemptions_per_hour=draw(st.integers(1, 3)),
    )  # fmt: skip
    memory = PolicyMemory(
        nice=draw(st.dictionaries(some_of, st.integers(-3, 3), max_size=3)),
        preempted=draw(st.sampled_from([{}, {}, {"1": 2}, {"1": 3}, {"2": 3}])),
        preempted_s=draw(st.lists(st.sampled_from([NOW_S - 3601, NOW_S - 3599]), max_size=2)),
        on_their_way=draw(st.sampled_from([(), (), (), ("1",), ("2",)])),
        limits=draw(site_limits),
        sizes=draw(st.dictionaries(some_of, st.sampled_from([JobSize(1, 2, 2), JobSize(1, 1, 4)]), max_size=2)),
        services=[float(at) for at in range(0, 5000, 100)],
    )
    history = draw(st.dictionaries(some_of, st.just([(NOW_S - 9000, NOW_S - 8900), (NOW_S - 8000, NOW_S - 7950)]),
                                   max_size=3))  # fmt: skip
    return SeenWorld(QueueLook(Queue(NOW_S, jobs, nodes, PARTITIONS, "aurora"), CONFIG), history, asked, memory)


def tier(job: QueuedJob) -> int:
    return max(TIERS[name] for name in job.partitions)


def precedence(job: QueuedJob, priority: int) -> tuple[float, ...]:
    return (-tier(job), -priority, job.submit_s, int(job.job_id.split("_")[0].split("+")[0]))


def is_fit(job: QueuedJob) -> bool:
    """Whether a policy may have to do with it, where its owner lets it."""
    whole = job.parts == 1 and "+" not in job.job_id
    held = job.state in (JobState.HELD, JobState.SUSPENDED) or (job.is_waiting and job.priority < 1)
    return whole and job.gpus > 0 and not held


def may_start(job: QueuedJob) -> bool:
    ready = job.eligible_s is not None and job.eligible_s <= NOW_S
    return job.is_waiting and ready and job.reason in STARTABLE


def starts_of(found: LiveDecision) -> list[str]:
    return [each.job_id for each in found.order if each.starts]


def only_jobs_that_opted_in_and_are_fit_are_touched(world: SeenWorld, found: LiveDecision) -> None:
    jobs = world.jobs
    touched = {each.job_id for each in found.changes} | {each.job_id for each in found.order}
    touched |= {each.job_id for each in found.sizes} | {each.job_id for each in found.preemptions}
    assert touched | set(found.running) | set(found.kept) <= {
        job_id for job_id, job in jobs.items() if is_fit(job) and job.consent is not PolicyConsent.NONE
    }
    assert set(starts_of(found)) <= {job_id for job_id, job in jobs.items() if may_start(job)}
    known = touched | set(found.running) | set(found.left)
    assert known == {job_id for job_id, job in jobs.items() if job.consent is not PolicyConsent.NONE}


def after_the_changes_the_manager_considers_jobs_in_the_policys_order(world: SeenWorld, found: LiveDecision) -> None:
    jobs = world.jobs
    nice = {each.job_id: each for each in found.changes}
    assert len(found.changes) <= world.settings.changes
    assert len(found.sizes) <= world.settings.changes
    for job_id, change in nice.items():
        assert change.before == world.memory.nice.get(job_id, jobs[job_id].nice)
        assert change.seen == jobs[job_id].nice != change.nice
    after = {job_id: job.priority + job.nice - (nice[job_id].nice if job_id in nice else job.nice)
             for job_id, job in jobs.items()}  # fmt: skip
    seen = sorted(found.order, key=lambda each: precedence(jobs[each.job_id], jobs[each.job_id].priority))
    assert [each.place_seen for each in seen] == list(range(1, len(seen) + 1))
    assert sorted(each.place for each in found.order) == list(range(1, len(seen) + 1))
    if len(found.changes) == world.settings.changes:
        return  # the others follow
    assert {each.job_id: each.wanted for each in found.order} == {each.job_id: after[each.job_id] for each in
                                                                  found.order}  # fmt: skip

    def considered(each: OrderedJob) -> tuple[float, ...]:
        return precedence(jobs[each.job_id], after[each.job_id])

    for each in set(TIERS.values()):
        there = [one for one in found.order if tier(jobs[one.job_id]) == each]
        assert sorted(there, key=considered) == sorted(there, key=lambda one: (not one.starts, one.place))
        back = [jobs[gone.job_id] for gone in found.preemptions]
        moved = [*(jobs[one.job_id] for one in there), *(job for job in back if tier(job) == each)]
        bases = [max(1, job.priority + job.nice - world.memory.nice.get(job.job_id, job.nice)) for job in moved]
        assert all(1 <= after[job.job_id] <= max(*bases, len(moved)) for job in moved)
    for gone in found.preemptions:
        if tier(jobs[gone.job_id]) == tier(jobs[gone.starts]):
            assert precedence(jobs[gone.starts], after[gone.starts]) < precedence(jobs[gone.job_id], after[gone.job_id])


def nobody_is_put_back_who_may_not_be(world: SeenWorld, found: LiveDecision) -> None:
    jobs, memory = world.jobs, world.memory
    usable = {node.name for node in world.queue.nodes if node.is_usable}
    hour = sum(at_s > NOW_S - 3600 for at_s in memory.preempted_s)
    assert len(found.preemptions) <= max(0, world.settings.preemptions_per_hour - hour)
    for each in found.preemptions:
        job = jobs[each.job_id]
        assert job.consent is PolicyConsent.PREEMPT
        assert job.may_requeue
        assert set(job.running_on) <= usable
        assert each.job_id not in memory.on_their_way
        assert memory.preempted.get(each.job_id, 0) < world.settings.preemptions_per_job
        assert job.start_s is not None
        assert NOW_S - job.start_s >= world.settings.least_run_s
        assert each.starts in starts_of(found)
    assert set(found.kept).isdisjoint(each.job_id for each in found.preemptions)


def free_gpus(world: SeenWorld, gone: set[str]) -> dict[str, int]:
    """Of each usable node, once some jobs are gone."""
    free = {node.name: node.gpus for node in world.queue.nodes if node.is_usable}
    for job in world.queue.running():
        if job.job_id not in gone and job.running_on[0] in free:
            free[job.running_on[0]] -= job.gpus
    return free


def places(job: QueuedJob, free: dict[str, int]) -> Iterator[dict[str, int]]:
    """What is free after a job has started, in each way in which it may."""
    only = job.required if len(job.required) >= job.nodes else ()
    names = [name for name in free if set(WHERE[name]) & set(job.partitions) and name not in job.excluded]
    names = [name for name in names if not only or name in only]
    for some_names in combinations(names, job.nodes):
        each = job.gpus // job.nodes
        if all(free[name] >= each for name in some_names):
            yield {name: left - each * (name in some_names) for name, left in free.items()}


def fit_together(jobs: Sequence[QueuedJob], free: dict[str, int]) -> bool:
    return not jobs or any(fit_together(jobs[1:], left) for left in places(jobs[0], free))


def all_who_are_to_start_find_room(world: SeenWorld, found: LiveDecision) -> None:
    if world.settings.name in ("themis", "sia"):
        return  # these choose sizes
    gone = {each.job_id for each in found.preemptions}
    assert fit_together([world.jobs[job_id] for job_id in starts_of(found)], free_gpus(world, gone))


def no_limit_is_exceeded_by_who_is_to_start(world: SeenWorld, found: LiveDecision) -> None:
    queue, known = world.queue, world.memory.limits
    if world.settings.name in ("themis", "sia"):
        return
    gone = {each.job_id for each in found.preemptions}
    run = [job for job in queue.running() if job.job_id not in gone]
    for job in (world.jobs[job_id] for job_id in starts_of(found)):
        run.append(job)  # who starts later may count for a limit that a QOS keeps from holding for it
        for limit in limits_on(job, queue, known):
            counted = [each for each in run if limit.counts in counts_for(each, queue, known)]
            assert sum(amount(each, limit.tres) for each in counted) <= limit.most


@given(worlds())
def test_room_that_nobody_is_in_the_way_of_is_used(world: SeenWorld) -> None:
    alone = all(job.consent is not PolicyConsent.NONE and is_fit(job) for job in world.queue.waiting())
    world = world._replace(memory=replace(world.memory, limits=SiteLimits()))
    found = world.decided()
    if world.settings.name not in PASSED_OVER or found.preemptions or not alone:
        return
    free = free_gpus(world, set())
    starts = [world.jobs[job_id] for job_id in starts_of(found)]
    for each in found.order:
        job = world.jobs[each.job_id]
        if may_start(job) and not each.starts and job.nodes == 1:
            assert starts or not any(places(job, free))


@given(worlds())
def test_nothing_depends_on_the_order_in_which_a_look_lists_jobs(world: SeenWorld) -> None:
    if world.settings.name == "sia":
        return  # its solver has so much time, and no more
    queue = replace(world.queue, jobs=world.queue.jobs[::-1])
    one, other = world.decided(), world._replace(look=replace(world.look, queue=queue)).decided()
    assert (one.order, one.changes, one.kept, one.left) == (other.order, other.changes, other.kept, other.left)
    assert set(one.preemptions) == set(other.preemptions)


def what_a_job_was_served_is_told(world: SeenWorld, found: LiveDecision) -> None:
    for each in found.order:
        assert each.attained_s == (150.0 if each.job_id in world.history else 0.0)


def sizes_are_such_as_were_asked_for_and_are_in_service(world: SeenWorld, found: LiveDecision) -> None:
    for each in found.sizes:
        job, nodes = world.jobs[each.job_id], usable_nodes(world, world.jobs[each.job_id])
        asked = world.memory.sizes.get(each.job_id, job.asks)
        assert job.is_waiting
        assert (each.before, each.seen) == (asked, job.asks)
        assert each.size != each.seen
        assert each.size.nodes == each.size.most_nodes <= len(nodes)
        assert asked is not None
        assert (each.size.tasks_per_node, each.size.cpus_per_task) == (asked.tasks_per_node, asked.cpus_per_task)
        if job.sizes:
            least = min(node.gpus for node in nodes)
            assert each.size.gpus in job.sizes
            assert each.size.gpus_per_node == min(each.size.gpus, least)
        else:
            assert each.size.gpus_per_node == asked.gpus_per_node
            assert asked.nodes <= each.size.nodes <= asked.most_nodes


def usable_nodes(world: SeenWorld, job: QueuedJob) -> list[QueuedNode]:
    return [node for node in world.queue.nodes if node.is_usable and set(node.partitions) & set(job.partitions)]


def sia_plans_for_what_it_knows_of_nodes_in_service(world: SeenWorld, found: LiveDecision) -> None:
    usable = [node.gpus for node in world.queue.nodes if node.is_usable]
    planned = [world.jobs[job_id] for job_id in (*(each.job_id for each in found.order), *found.running)]
    for job in planned if world.settings.name == "sia" else ():
        of_a_node = any(job.gpus < size and job.gpus in (1, 2, 4) for size in usable)
        whole = any(job.gpus % size == 0 and job.gpus // size <= usable.count(size) for size in usable)
        assert of_a_node or whole or (job.is_waiting and job.asks is not None)


def nobody_makes_room_that_a_job_of_others_would_take(world: SeenWorld, found: LiveDecision) -> None:
    if not found.preemptions:
        return
    jobs, wanted = world.jobs, {each.job_id: each.wanted for each in found.order}
    others = [job for job in jobs.values() if may_start(job) and job.gpus and job.job_id not in wanted]
    for job in (jobs[job_id] for job_id in starts_of(found)):
        shared = {name for where in WHERE.values() if set(where) & set(job.partitions) for name in where}
        own = (-min(TIERS[name] for name in job.partitions), *precedence(job, wanted[job.job_id])[1:])
        assert not any(shared & set(each.partitions) and precedence(each, each.priority) < own for each in others)


LAWS = (
    sizes_are_such_as_were_asked_for_and_are_in_service,
    sia_plans_for_what_it_knows_of_nodes_in_service,
    nobody_makes_room_that_a_job_of_others_would_take,
    only_jobs_that_opted_in_and_are_fit_are_touched,
    after_the_changes_the_manager_considers_jobs_in_the_policys_order,
    nobody_is_put_back_who_may_not_be,
    all_who_are_to_start_find_room,
    no_limit_is_exceeded_by_who_is_to_start,
    what_a_job_was_served_is_told,
)


@given(worlds())
@settings(max_examples=400)
def test_each_law_holds(world: SeenWorld) -> None:
    found = world.decided()
    for law in LAWS:
        law(world, found)


def test_a_manager_that_does_not_tell_how_it_orders_is_taken_to_order_by_priority() -> None:
    there = QueueLook(Queue(NOW_S, (waiting("3", 9),), (), PARTITIONS, "aurora"), {})
    assert [each.job_id for each in decide(there, {}, PolicySettings("fifo"), PolicyMemory()).order] == ["3"]
