"""What-if runs of a queue: closed forms on small queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.settings import PrioritySettings, PriorityWeights, SchedulerSettings
from perdure.scheduling.slurm.site_limits import AssociationLimits, QosLimits, SiteLimits, TresLimits
from perdure.waits import rollout
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition
from perdure.waits.rollout import Scene, fixed_part, scene_of
from tests.waits.test_past import NOW_S, past
from tests.waits.test_queue import waiting

PARTITIONS = (QueuedPartition("main", is_default=True), QueuedPartition("other"))
NODES = (
    QueuedNode("n0", ("main",), gpus=4, cpus=8),
    QueuedNode("n1", ("main",), gpus=4, cpus=8),
    QueuedNode("o0", ("other",), gpus=4, cpus=8),
)


def running(job_id: str, gpus: int, ran_s: float, walltime_s: float, **more: Any) -> QueuedJob:
    given = {"partitions": ("main",), "running_on": ("n0", "n1")[: -(-gpus // 4)], **more}
    start_s = NOW_S - ran_s
    return QueuedJob(
        job_id, "tom", JobState.RUNNING, gpus=gpus, start_s=start_s, submit_s=start_s, eligible_s=start_s,
        walltime_s=walltime_s, **given,
    )  # fmt: skip


def asking(job_id: str, gpus: int, **more: Any) -> QueuedJob:
    given = {"eligible_s": NOW_S - 60, "walltime_s": 600.0, "submit_s": NOW_S - 60, **more}
    return waiting(job_id, gpus=gpus, **given)


def scene(
    job: QueuedJob,
    *others: QueuedJob,
    history: Past | None = None,
    samples: int = 4,
    limits: SiteLimits | None = None,
) -> Scene:
    queue = Queue(NOW_S, (*others, *([job] if job.job_id else [])), NODES, PARTITIONS)
    return scene_of(job, queue, SchedulerSettings(), history or Past(), np.random.default_rng(0), samples, limits)


def waits(job: QueuedJob, *others: QueuedJob, history: Past | None = None) -> np.ndarray:
    return scene(job, *others, history=history).starts([job])[0] - NOW_S


def test_what_fits_into_free_gpus_starts_at_once() -> None:
    assert waits(asking("9", 4), running("1", 4, 100, 3600)) == pytest.approx(0, abs=60)


def test_what_does_not_fit_starts_when_a_running_job_ends() -> None:
    found = scene(asking("9", 8), running("1", 4, 100.0, 3600.0))
    ends = found.duration_s[0] - 100.0
    assert found.starts([asking("9", 8)])[0] - NOW_S == pytest.approx(ends, abs=61)


def test_run_times_that_history_tells_move_the_start() -> None:
    history = past(14)  # all jobs run for a tenth of their limit
    found = waits(asking("9", 8, user="d"), running("1", 4, 100.0, 3600.0), history=history)
    assert np.median(found) == pytest.approx(260, abs=61)  # a tenth of an hour, less what it has run


def test_some_futures_and_a_guess_of_the_start_give_the_same_starts() -> None:
    mine = asking("9", 8)
    found = scene(mine, running("1", 4, 100.0, 30 * 3600.0), history=past(14), samples=6)
    whole = found.starts([mine])[0]
    for about_s in (0.0, NOW_S + 7200, np.inf):
        assert found.starts([mine], range(2, 5), about_s)[0].tolist() == whole[2:5].tolist()


LAB = AssociationLimits("lab", limits=TresLimits({"gres/gpu": 4}))
TEAM = AssociationLimits("team", parent="lab")
GOLD = QosLimits("gold", TresLimits(jobs_per_user=1, tres_per_job={"gres/gpu": 2}))


def test_a_limit_holds_a_job_though_gpus_are_free() -> None:
    limits = SiteLimits((GOLD,), (LAB, TEAM))
    first = running("1", 4, 100.0, 600.0, account="lab")
    mine = asking("9", 1, account="team")
    ends = scene(mine, first, limits=limits).duration_s[0] - 100.0
    assert scene(mine, first, limits=limits).starts([mine])[0] - NOW_S == pytest.approx(ends, abs=61)
    assert waits(asking("9", 1, account="other"), first) == pytest.approx(0, abs=60)
    own = running("1", 4, 100.0, 600.0, qos="gold")  # runs, though it is above the limit of one job
    for user, wait_s in (("tom", ends), ("ann", [0] * 4)):
        job = asking("9", 1, qos="gold", user=user)
        assert scene(job, own, limits=limits).starts([job])[0] - NOW_S == pytest.approx(wait_s, abs=61)
    large = asking("9", 4, qos="gold", user="ann")
    assert np.isinf(scene(large, own, limits=limits).starts([large])).all()


def test_jobs_that_are_to_come_are_limited_too() -> None:
    job = asking("9", 4, account="lab")
    found = scene(job, history=past(14), limits=SiteLimits((GOLD,), (LAB, TEAM, AssociationLimits("lab", "d"))))
    assert [each.account for each in found.settings.associations] == ["lab", "team"]  # users without limits are not
    assert found.settings.partitions[0].qos == ""


def test_the_higher_priority_goes_first_though_it_came_later() -> None:
    mine, first = asking("9", 8, priority=5), asking("8", 8, priority=7)
    found = scene(mine, running("1", 8, 0.0, 600.0), first).starts([mine, first])
    assert (found[1] < found[0]).all()


def test_partitions_that_share_no_node_do_not_matter() -> None:
    elsewhere = running("1", 4, 0.0, 3600.0, partitions=("other",), running_on=("o0",))
    found = scene(asking("9", 8), elsewhere)
    assert found.total_gpus == 8
    assert found.partitions == {"main"}
    assert found.starts([asking("9", 8)])[0] - NOW_S == pytest.approx(0, abs=60)


@pytest.mark.parametrize("mine", ["p0", "p2", "p4"])
def test_partitions_compete_by_way_of_others(mine: str) -> None:
    """Each shares a node with the next; the last two are apart."""
    nodes = [QueuedNode(f"n{at}", (f"p{at}", f"p{at + 1}"), gpus=4, cpus=8) for at in (2, 0, 3, 1, 6)]
    names = tuple(QueuedPartition(f"p{at}") for at in range(8))
    job, other = asking("9", 1, partition=mine), asking("8", 1, partition="p1")
    queue = Queue(NOW_S, (job, other), tuple(nodes), names)
    found = scene_of(job, queue, SchedulerSettings(), Past(), np.random.default_rng(0), 1)
    assert found.partitions == {"p0", "p1", "p2", "p3", "p4"}
    assert (found.total_gpus, found.jobs) == (16, (other, job))


def test_nodes_out_of_service_give_nothing_back() -> None:
    nodes = (QueuedNode("n0", ("main",), gpus=4), QueuedNode("n1", ("main",), is_usable=False, gpus=4))
    job, busy = asking("9", 4), running("1", 8, 0.0, 600.0)
    queue = Queue(NOW_S, (job, busy), nodes, PARTITIONS)
    found = scene_of(job, queue, SchedulerSettings(), Past(), np.random.default_rng(0), 4)
    assert found.total_gpus == 4
    assert (found.starts([job])[0] > NOW_S).all()


def test_a_job_that_is_larger_than_all_nodes_never_starts() -> None:
    assert np.isinf(waits(asking("9", 16))).all()


def test_a_held_job_stands_in_nobodys_way() -> None:
    held = QueuedJob(
        "3", "tom", JobState.HELD, ("main",), gpus=8, priority=99, submit_s=NOW_S - 900, eligible_s=NOW_S - 900
    )
    assert waits(asking("9", 8), held) == pytest.approx(0, abs=60)


def test_each_task_of_an_array_is_a_job() -> None:
    array = asking("5", 8, priority=99, tasks=3)
    found = scene(asking("9", 8), array)
    assert [job.job_id for job in found.jobs if job.job_id.startswith("5")] == ["5", "5[1]", "5[2]"]
    assert (found.starts([asking("9", 8)])[0] > NOW_S).all()


def test_a_begin_time_and_a_dependency_are_waited_for() -> None:
    begins = asking("9", 1, eligible_s=NOW_S + 900)
    assert waits(begins) == pytest.approx(900, abs=60)
    first, then = running("1", 1, 100.0, 600.0), asking("9", 1, eligible_s=None, dependency="afterany:1(unfulfilled)")
    found = scene(then, first)
    assert found.starts([then])[0] - NOW_S == pytest.approx(found.duration_s[0] - 100.0, abs=61)


@pytest.mark.parametrize("small", [0, rollout.SMALL_ON_NODES])  # the compiled loop, and the plain one
def test_nothing_starts_before_now_though_a_begin_time_is_over(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(rollout, "SMALL_ON_NODES", small)
    begun, new = asking("5", 1, submit_s=NOW_S - 900, eligible_s=NOW_S - 300), asking("", 2)
    found = scene(new, running("1", 4, 1000.0, 3600.0), begun)
    assert (found.starts([begun, new]) >= NOW_S).all()


def test_one_that_is_not_submitted_stands_behind_those_that_wait() -> None:
    script = asking("", 8, priority=1)
    there = asking("8", 8, priority=10)
    queue = scene(script, there)
    assert (queue.starts([script])[0] > queue.starts([there])[0]).all()


def test_one_that_is_asked_about_but_not_among_those_there_may_have_come_before_them() -> None:
    late, early = asking("8", 8), asking("3", 1, submit_s=NOW_S - 900)
    assert np.isfinite(scene(late).starts([early])).all()


def test_the_same_generator_gives_the_same_futures() -> None:
    job, busy = asking("9", 8), running("1", 8, 10.0, 3600.0)
    once, again = (scene(job, busy, history=past(14)).starts([job]) for _ in range(2))
    assert (once == again).all()


def test_how_far_a_future_is_simulated_changes_no_start() -> None:
    """Each future begins with the horizon that the one before it needed."""
    mine = asking("9", 8, priority=1)
    others = [asking(str(place), 8, priority=9, walltime_s=hours * 3600.0) for place, hours in enumerate((1, 2, 30), 1)]
    whole = scene(mine, *others, history=past(14), samples=6)
    alone = [
        replace(whole, futures=(future,), duration_s=whole.duration_s[:, [place]]).starts([mine])[0, 0]
        for place, future in enumerate(whole.futures)
    ]
    assert whole.starts([mine])[0].tolist() == alone


def test_one_that_starts_in_none_of_the_first_futures_is_not_asked_about_in_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    live = Scene._live

    def counted(self: Scene, sample: int, *more: Any) -> Any:
        asked.append(sample)
        return live(self, sample, *more)

    monkeypatch.setattr(Scene, "_live", counted)
    never = scene(asking("9", 8), running("1", 8, 60.0, 9e8), samples=20).starts([asking("9", 8)])
    assert never.shape == (1, 20)
    assert np.isinf(never).all()
    assert set(asked) == set(range(rollout.SURE))


def test_in_a_crowd_priorities_are_calculated_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "CROWD", 2)
    few, many = (scene(asking("9", 8), *(asking(str(n), 8) for n in range(1, others))) for others in (2, 8))
    assert many.settings.priority.calc_period_s == 4 * few.settings.priority.calc_period_s


def test_one_that_is_not_submitted_starts_as_if_it_were_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself, though they are asked about together; jobs are to come, before and after them."""
    others = [running("1", 8, 600.0, 7200.0), *(asking(str(each), 1 + each % 4, priority=each) for each in range(2, 9))]
    new = [asking("", gpus, priority=5, submit_s=NOW_S, eligible_s=NOW_S) for gpus in (1, 4, 8)]
    gone = past(14)
    history = replace(gone, jobs=replace(gone.jobs, partition=np.full(len(gone.jobs), "main")))
    found = scene(new[0], *others, history=history, samples=3)
    assert found.has_arrivals
    for small in (10**6, 0):  # by the plain loop, and compiled
        monkeypatch.setattr(rollout, "SMALL_ON_NODES", small)
        together = found.starts(new)
        for job, starts in zip(new, together, strict=True):
            there = replace(found, jobs=(*found.jobs, job), duration_s=np.vstack([found.duration_s, np.full(3, 600.0)]))
            assert there.starts([job])[0].tolist() == starts.tolist()
        before_s = np.median(together, axis=0)
        cut = found.starts(new, before_s=before_s)
        assert (cut == np.where(together < before_s, together, np.inf)).all()


def test_age_is_taken_out_of_the_priority_that_is_shown() -> None:
    aged = SchedulerSettings(PrioritySettings(weights=PriorityWeights(age=1000), max_age_s=1000.0))
    job = waiting("1", priority=1600, eligible_s=NOW_S - 500)
    assert fixed_part(job, aged, NOW_S) == pytest.approx(1100)


SHARED = (
    QueuedNode("n0", ("a", "b"), gpus=4, cpus=8),
    QueuedNode("n1", ("b",), gpus=4, cpus=8),
)


def shared(job: QueuedJob, *others: QueuedJob, samples: int = 4) -> Scene:
    queue = Queue(NOW_S, (job, *others), SHARED, (QueuedPartition("a"), QueuedPartition("b")))
    return scene_of(job, queue, SchedulerSettings(), Past(), np.random.default_rng(0), samples)


def test_a_job_uses_no_gpus_of_nodes_that_its_partition_does_not_have() -> None:
    """Node n1 is idle, and only in the other partition."""
    first = running("1", 4, 100.0, 3600.0, partitions=("b",), running_on=("n0",))
    mine, other = asking("9", 1, partition="a"), asking("8", 1, partition="b")
    found = shared(mine, first, other)
    ends = found.duration_s[found.jobs.index(first)] - 100.0
    assert found.starts([mine])[0] - NOW_S == pytest.approx(ends, abs=61)
    assert found.starts([other])[0] - NOW_S == pytest.approx(0, abs=61)


def test_gpus_that_are_free_on_several_nodes_make_no_room_on_one() -> None:
    halves = [running(name, 2, 100.0, 3600.0, partitions=("b",), running_on=(f"n{name}",)) for name in "01"]
    one, two = asking("9", 4, partition="b"), asking("9", 4, partition="b", nodes=2)
    assert (shared(one, *halves).starts([one])[0] - NOW_S > 30).all()
    assert shared(two, *halves).starts([two])[0] - NOW_S == pytest.approx(0, abs=61)


def test_what_never_fits_on_the_nodes_of_its_partition_never_starts_and_holds_up_nobody() -> None:
    wide, mine = asking("8", 8, partition="a", priority=9), asking("9", 4, partition="a")
    found = shared(mine, wide)
    assert np.isinf(found.starts([wide])).all()
    assert found.starts([mine])[0] - NOW_S == pytest.approx(0, abs=61)


def test_a_few_jobs_do_not_load_the_compiled_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer to load than they take."""
    loaded: list[str] = []
    monkeypatch.setattr("perdure.simulation.live.find_spec", loaded.append)
    mine = asking("9", 1, partition="a")
    few, more = (tuple(asking(str(i), 1, partition="b") for i in range(many)) for many in (5, 30))
    shared(mine, *few, samples=1).starts([mine])
    assert not loaded
    shared(mine, *more, samples=1).starts([mine])
    assert loaded


def test_beyond_some_nodes_gpus_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "MOST_NODES", 1)
    found = shared(asking("9", 1, partition="a"))
    assert found.sizes == ()
    assert found.total_gpus == 8


def test_jobs_to_come_have_the_priority_of_waiting_jobs_most_like_them() -> None:
    small, large = asking("8", 1, user="d", priority=100), asking("7", 4, user="d", priority=900)
    found = scene(small, large, asking("6", 1, user="e", priority=50), history=past(14))  # ones of 1 GPU by user d come
    coming = found.futures[0]
    assert set(coming.nice[coming.user == "d"].tolist()) <= {-100}
