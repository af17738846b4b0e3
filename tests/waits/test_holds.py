"""What holds a job, in words."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.model.jobs import JobState
from perdure.waits.holds import HoldKind, hold_of
from perdure.waits.queue import QueuedJob
from tests.waits.test_queue import queue, waiting


def running(job_id: str, gpus: int, start_s: float = 0.0, walltime_s: float | None = 3600.0) -> QueuedJob:
    return QueuedJob(
        job_id, "tom", JobState.RUNNING, ("main",), gpus=gpus, start_s=start_s, walltime_s=walltime_s, eligible_s=0.0
    )


def test_priority_counts_who_stands_before_and_names_the_first() -> None:
    mine = waiting("9", 1, reason="Priority")
    hold = hold_of(mine, queue(mine, waiting("5", 7), waiting("6", 5), running("1", 12)))
    assert (hold.kind, hold.ahead, hold.ahead_gpus) == (HoldKind.PRIORITY, 2, 8)
    assert hold.says == "2 jobs are considered before it in main (8 GPUs); the first, 5 of mira, waits for 4 GPUs"


def test_resources_tell_when_enough_is_free_by_the_limits_of_what_runs() -> None:
    mine = waiting("9", reason="Resources")
    hold = hold_of(mine, queue(mine, running("1", 8, 0), running("2", 4, 0, 7200.0)))
    assert hold.kind is HoldKind.RESOURCES
    assert hold.says.startswith("it needs 4 GPUs, and 0 of 12 GPUs in main are free")
    assert hold.says.endswith("enough is free at 01:00")


def test_a_job_without_limit_leaves_open_when_enough_is_free() -> None:
    mine = waiting("9", reason="Resources")
    assert "by the time limits" not in hold_of(mine, queue(mine, running("1", 12, 0, None))).says


@pytest.mark.parametrize(
    ("reason", "more", "kind", "part"),
    [
        ("Dependency", {"dependency": "afterok:12(unfulfilled)"}, HoldKind.DEPENDENCY, "job 12 to end well"),
        ("Dependency", {"dependency": "singleton(unfulfilled)"}, HoldKind.DEPENDENCY, "of its owner and name"),
        ("BeginTime", {"eligible_s": 7200.0}, HoldKind.BEGIN_TIME, "before 02:00"),
        ("QOSMaxGRESPerUser", {"qos": "gold"}, HoldKind.LIMIT, "QOS gold limits the GPUs of one user"),
        (
            "AssocGrpCpuLimit",
            {"account": "lab"},
            HoldKind.LIMIT,
            "account lab limits the CPUs of all its jobs together",
        ),
        ("QOSGrpGRESMinutes", {"qos": "gold"}, HoldKind.LIMIT, "has used up its compute time"),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", {}, HoldKind.RESERVATION, "shorter --time"),
        ("ReqNodeNotAvail,_UnavailableNodes:n1", {}, HoldKind.NODES, "down, drained or reserved"),
        ("JobHeldUser", {}, HoldKind.HELD, "scontrol release 9"),
        ("PartitionTimeLimit", {}, HoldKind.NEVER, "lower --time"),
        ("PartitionDown", {}, HoldKind.PARTITION, "main is down"),
        ("Licenses", {}, HoldKind.LICENCES, "licences"),
        ("DependencyNeverSatisfied", {"dependency": "afterok:3(failed)"}, HoldKind.NEVER, "did not end as"),
        ("SomethingOfANewerSlurm", {}, HoldKind.OTHER, "Slurm says SomethingOfANewerSlurm"),
    ],
)
def test_each_reason_has_its_kind_and_its_sentence(
    reason: str, more: dict[str, Any], kind: HoldKind, part: str
) -> None:
    mine = waiting("9", reason=reason, **more)
    hold = hold_of(mine, queue(mine))
    assert hold.kind is kind
    assert part in hold.says


def test_only_what_passes_by_itself_can_start() -> None:
    can = {
        reason: hold_of(waiting("9", reason=reason), queue()).can_start
        for reason in ("JobHeldUser", "Licenses", "BadConstraints")
    }
    assert can == {"JobHeldUser": False, "Licenses": True, "BadConstraints": False}
