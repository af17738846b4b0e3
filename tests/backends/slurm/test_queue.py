"""The queue as scontrol tells of it."""

from __future__ import annotations

from typing import Any

from perdure.backends.slurm.queue import queue_of, read_partitions, read_reservations
from perdure.backends.slurm.records import read_jobs
from perdure.model.jobs import JobState
from tests.backends.slurm.text import MARK, job

PARTITION = (
    "PartitionName=main AllowGroups=ALL Default=YES QoS=N/A DefaultTime=01:00:00 MaxNodes=8 MaxTime=1-00:00:00 "
    "Nodes=node[1-4] PriorityJobFactor=1 PriorityTier=10 State=UP TotalCPUs=32\n"
    "PartitionName=old Default=NO DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED PriorityTier=1 State=DRAIN\n"
)


def test_partitions_have_limits_tier_and_state() -> None:
    main, old = read_partitions(PARTITION.encode())
    assert (main.name, main.is_default, main.is_up, main.priority_tier) == ("main", True, True, 10)
    assert (main.max_time_s, main.default_time_s, main.max_nodes) == (86400.0, 3600.0, 8)
    assert (old.is_up, old.max_time_s, old.default_time_s, old.max_nodes) == (False, None, None, None)


def test_the_queue_holds_who_waits_and_who_runs_and_nobody_else() -> None:
    text = "".join(
        (
            job(1, state="RUNNING", start="100"),
            job(2, state="PENDING", start="Unknown", reason="Priority"),
            job(3, state="PENDING", start="Unknown", reason="JobHeldUser", priority=0),
            job(4, state="COMPLETED", end="200"),
            job(5, state="COMPLETING", end="200"),
        )
    )
    records = read_jobs(text.encode(), MARK).whole
    queue = queue_of(300.0, records, (), read_partitions(PARTITION.encode()))
    states = {each.job_id: each.state for each in queue.jobs}
    assert states == {
        "1": JobState.RUNNING,
        "2": JobState.PENDING,
        "3": JobState.HELD,
        "5": JobState.RUNNING,  # its nodes are not free yet
    }
    assert [each.job_id for each in queue.waiting()] == ["2"]


def test_users_without_a_name_are_not_one_user() -> None:
    text = "".join(job(number, user="nobody", uid=4240 + number) for number in (1, 2))
    queue = queue_of(300.0, read_jobs(text.encode(), MARK).whole, (), ())
    assert [each.user for each in queue.jobs] == ["4241", "4242"]


def test_an_array_that_waits_counts_its_tasks() -> None:
    text = job(7, state="PENDING", start="Unknown", reason="Priority").replace(
        "JobId=7 ", "JobId=7 ArrayJobId=7 ArrayTaskId=2-9%3 "
    )
    (record,) = read_jobs(text.encode(), MARK).whole
    assert (record.job_id, record.waiting_tasks) == ("7", 8)


def test_a_limit_on_running_tasks_is_told_by_those_that_wait() -> None:
    text = job(7, state="PENDING", start="Unknown", reason="JobArrayTaskLimit").replace(
        "JobId=7 ", "JobId=7 ArrayJobId=7 ArrayTaskId=2-9%3 ArrayTaskThrottle=3 "
    )
    (told,) = queue_of(300.0, read_jobs(text.encode(), MARK).whole, (), ()).jobs
    assert (told.most_tasks, told.tasks, told.array) == (3, 8, "7")


def test_the_parts_of_a_heterogeneous_job_are_one_while_they_wait() -> None:
    def parts(state: str, **more: Any) -> str:
        told = ((job(12 + part, state=state, **more), part) for part in (0, 1))
        return "".join(
            text.replace(f"JobId={12 + part} ", f"JobId={12 + part} HetJobId=12 HetJobOffset={part} ")
            for text, part in told
        )

    waits, runs = (
        queue_of(300.0, read_jobs(text.encode(), MARK).whole, (), ())
        for text in (parts("PENDING", start="Unknown", reason="Priority"), parts("RUNNING", start="100"))
    )
    (whole,) = waits.jobs
    assert (whole.job_id, whole.parts) == ("12", 2)
    assert waits.job("12") == waits.job("12+1") == whole
    assert [each.job_id for each in runs.jobs] == ["12+0", "12+1"]
    assert (whole.gpus, whole.cpus, whole.nodes) == tuple(
        sum(getattr(each, name) for each in runs.jobs) for name in ("gpus", "cpus", "nodes")
    )


def test_reservations_are_told_with_their_nodes_and_times() -> None:
    text = (
        f"ReservationName=maint StartTime=7200~{MARK} EndTime=10800~{MARK} Duration=01:00:00 Nodes=node[1-2] NodeCnt=2 "
        "Features=(null) Flags=MAINT,SPEC_NODES TRES=cpu=16 Users=root Accounts=(null) State=INACTIVE\n"
        "No reservations in the system\n"
    )
    (found,) = read_reservations(text.encode(), MARK)
    assert (found.name, found.begin_s, found.end_s, found.nodes) == ("maint", 7200, 10800, ("node1", "node2"))
    record = job(7, state="PENDING", start="Unknown", reason="Reservation")
    told = record.replace(" Features=(null)", " Features=(null) DelayBoot=00:00:00 Reservation=class OverSubscribe=OK")
    assert told != record
    assert queue_of(300.0, read_jobs(told.encode(), MARK).whole, (), ()).jobs[0].reservation == "class"
