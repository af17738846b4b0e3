"""Who stands before whom in a queue."""

from __future__ import annotations

from typing import Any

from perdure.model.jobs import JobState
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueuedReservation, ahead_of

NODES = tuple(QueuedNode(f"n{i}", ("main", "short") if i < 2 else ("main",), gpus=4, cpus=8) for i in range(3))
PARTITIONS = (
    QueuedPartition("main", is_default=True),
    QueuedPartition("short", priority_tier=2),
    QueuedPartition("cpu"),
)


def waiting(job_id: str, priority: int = 10, submit_s: float = 0.0, partition: str = "main", **more: Any) -> QueuedJob:
    given = {"user": "mira", "gpus": 4, "eligible_s": 0.0, **more}
    return QueuedJob(
        job_id, state=JobState.PENDING, partitions=(partition,), priority=priority, submit_s=submit_s, **given
    )


def queue(*jobs: QueuedJob, now_s: float = 100.0) -> Queue:
    return Queue(now_s, jobs, NODES, PARTITIONS)


def names(jobs: list[QueuedJob]) -> list[str]:
    return [job.job_id for job in jobs]


def test_priority_then_submit_then_number_decide_who_stands_before() -> None:
    mine = waiting("20", priority=10, submit_s=50)
    others = waiting("5", 11, 90), waiting("6", 10, 40), waiting("9", 10, 50), waiting("21", 10, 50), waiting("7", 9, 0)
    assert names(ahead_of(mine, queue(mine, *others))) == ["5", "6", "9"]


def test_a_higher_tier_goes_before_any_priority_where_nodes_are_shared() -> None:
    mine, tier, elsewhere = waiting("1", 1000), waiting("2", 1, partition="short"), waiting("3", 9999, partition="cpu")
    assert names(ahead_of(mine, queue(mine, tier, elsewhere))) == ["2"]


def test_what_may_not_start_yet_or_is_held_stands_before_nobody() -> None:
    mine = waiting("9")
    later, depends = waiting("1", 99, eligible_s=500.0), waiting("2", 99, eligible_s=None)
    held = QueuedJob("3", "tom", JobState.HELD, ("main",), priority=99, eligible_s=0.0)
    assert not ahead_of(mine, queue(mine, later, depends, held))


def test_a_task_that_waits_is_found_with_its_array() -> None:
    array = waiting("7", tasks=5, task_list="2-4,10-20:5")
    found = queue(waiting("7_1"), array)
    assert all(found.job(f"7_{task}") == array for task in (2, 4, 10, 15))
    assert [found.job(f"7_{task}") for task in (5, 11, 21)] == [None] * 3
    cut = waiting("8", tasks=5, task_list="2-4,...")
    assert queue(cut).job("8_99") == cut


def test_an_array_is_found_by_its_own_number() -> None:
    rest, task = waiting("7", tasks=5), QueuedJob("7_1", "mira", JobState.RUNNING, ("main",))
    assert queue(task, rest).job("7") is rest
    assert queue(task).job("7") is task
    assert queue(task).job("8") is None


def test_of_reservations_the_next_of_others_on_its_nodes_is_in_the_way() -> None:
    job = waiting("1", walltime_s=100.0, reservation="own")
    there = {
        "own": (110.0, ("n0",)), "second": (150.0, ("n1",)), "first": (120.0, ("n2",)), "begun": (99.0, ("n0",)),
        "elsewhere": (105.0, ("n9",)), "later": (201.0, ("n0",)),
    }  # fmt: skip
    kept = tuple(QueuedReservation(name, begin_s, 999.0, nodes) for name, (begin_s, nodes) in there.items())
    whole = Queue(100.0, (job,), NODES, PARTITIONS, "", kept)
    found = whole.reservation_in_the_way(job, 100.0)
    assert found is not None
    assert found.name == "first"
    without = Queue(
        100.0, (job,), NODES, PARTITIONS, "", tuple(each for each in kept if each.name not in ("first", "second"))
    )
    assert without.reservation_in_the_way(job, 100.0) is None
