"""What holds a job, in words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.site_limits import AssociationLimits, QosLimits, SiteLimits, TresLimits
from perdure.waits.holds import HoldKind, hold_of
from perdure.waits.limits import with_defaults
from perdure.waits.queue import QueuedJob, QueuedReservation
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


def test_who_ends_first_makes_room_first() -> None:
    mine = waiting("9", reason="Resources")
    says = hold_of(mine, queue(mine, running("2", 4, 0, 7200.0), running("1", 8, 0))).says
    assert says.endswith("enough is free at 01:00")


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


LIMITS = SiteLimits(
    (QosLimits("gold", TresLimits(tres_per_user={"gres/gpu": 4}, jobs_per_user=2)),
     QosLimits("one", TresLimits(grp_jobs=1))),
    (AssociationLimits("hall", limits=TresLimits({"gres/gpu": 6})), AssociationLimits("lab", parent="hall"),
     AssociationLimits("lab", "mira", limits=TresLimits(jobs_per_user=1))),
)  # fmt: skip


def of(user: str, job_id: str, gpus: int, **more: Any) -> QueuedJob:
    return structs.replace(running(job_id, gpus), user=user, account="lab", **more)


@pytest.mark.parametrize(
    ("others", "more", "says"),
    [
        (
            (of("mira", "1", 3, qos="gold"), of("tom", "2", 4, qos="gold")),
            {"qos": "gold", "gpus": 2, "reason": "QOSMaxGRESPerUser"},
            "QOS gold allows 4 GPUs to one user; 3 are in use by mira's job 1: it can start when enough of them end, "
            "by their time limits at 01:00 (QOSMaxGRESPerUser)",
        ),
        (
            (of("tom", "2", 4), of("ann", "3", 1, walltime_s=None)),
            {"account": "lab", "gpus": 2, "reason": "AssocGrpGRES"},
            "account hall allows 6 GPUs to all its jobs together; 5 are in use by jobs 2 of tom, 3 of ann: it can "
            "start when enough of them end, by their time limits at 01:00 (AssocGrpGRES)",
        ),
        (
            (of("mira", "1", 0),),
            {"account": "lab", "gpus": 2, "reason": "AssocMaxJobsLimit"},
            "mira in account lab allows one running job to one user; one is in use by mira's job 1: it can start when "
            "enough of them end, by their time limits at 01:00 (AssocMaxJobsLimit)",
        ),
        (
            (of("tom", "2", 1, qos="one", walltime_s=None),),
            {"qos": "one", "gpus": 2},
            "QOS one allows one running job to all its jobs together; one is in use by job 2 of tom: it can start when "
            "enough of them end",
        ),
        (
            (),
            {"qos": "gold", "gpus": 2, "reason": "QOSMaxGRESPerUser"},  # nothing that is seen counts for it
            "QOS gold limits the GPUs of one user: it can start when other jobs of mira end (QOSMaxGRESPerUser)",
        ),
    ],
)
def test_a_limit_that_is_known_is_told_with_what_is_used_and_by_whom(
    others: tuple[QueuedJob, ...], more: dict[str, Any], says: str
) -> None:
    mine = waiting("9", **more)
    hold = hold_of(mine, queue(mine, *others), limits=LIMITS)
    assert (hold.kind, hold.says, hold.can_start) == (HoldKind.LIMIT, says, True)


def test_a_job_above_a_limit_by_itself_never_starts() -> None:
    mine = waiting("9", account="lab", gpus=8)
    hold = hold_of(mine, queue(mine), limits=LIMITS)
    assert (hold.kind, hold.can_start) == (HoldKind.NEVER, False)
    assert hold.says == "account hall allows 6 GPUs to all its jobs together, and it asks for 8: ask for less"


def test_a_limit_further_on_gives_way_to_that_of_the_qos() -> None:
    """Slurm takes the first that is set: two jobs of a user in gold, and not one."""
    mine = waiting("9", account="lab", qos="gold", gpus=1)
    assert hold_of(mine, queue(mine, of("mira", "1", 1, qos="gold")), limits=LIMITS).kind is HoldKind.NOTHING


def test_a_script_gets_the_account_and_the_qos_of_its_user() -> None:
    asked = with_defaults(waiting("", account="", qos=""), LIMITS)
    assert (asked.account, asked.qos) == ("lab", "normal")
    stranger = waiting("", user="ann")
    assert with_defaults(stranger, LIMITS) == stranger


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("JobHeldUser", {"eligible_s": 7200.0}),
        ("Dependency", {"dependency": "afterok:12(unfulfilled)"}),
        ("Licenses", {}),
    ],
)
def test_a_held_job_is_held_whatever_else_it_waits_for(reason: str, more: dict[str, Any]) -> None:
    mine = structs.replace(waiting("9", reason=reason, **more), state=JobState.HELD, priority=0)
    hold = hold_of(mine, queue(mine))
    assert (hold.kind, hold.can_start) == (HoldKind.HELD, False)
    assert "scontrol release 9" in hold.says


def test_gpus_that_jobs_of_another_partition_have_on_shared_nodes_are_not_free() -> None:
    """``short`` has the first two of the three nodes of ``main``."""
    there = structs.replace(running("1", 8), partitions=("short",), running_on=("n0", "n1"))
    own = structs.replace(running("2", 4), running_on=("n2",))
    mine = waiting("9", reason="Resources")
    in_main = hold_of(mine, queue(mine, there, own))
    assert "0 of 12 GPUs in main are free" in in_main.says
    assert in_main.says.endswith("enough is free at 01:00")
    mine = waiting("9", partition="short", reason="Resources")
    in_short = hold_of(mine, queue(mine, own))
    assert "8 of 8 GPUs in short are free" in in_short.says


def test_each_task_of_an_array_stands_before() -> None:
    mine = waiting("9", 1, reason="Priority")
    hold = hold_of(mine, queue(mine, waiting("5", 7, tasks=50), waiting("6", 5)))
    assert (hold.ahead, hold.ahead_gpus) == (51, 204)
    assert hold.says.startswith("51 jobs are considered before it in main (204 GPUs); the first, 5 of mira")


def test_what_nothing_starts_stands_before_nobody() -> None:
    mine = waiting("9", 1, reason="Priority")
    hold = hold_of(mine, queue(mine, waiting("5", 7, reason="PartitionTimeLimit"), waiting("6", 5)))
    assert hold.ahead == 1


HIGHER = "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"


def test_nodes_that_are_kept_for_a_higher_partition_are_no_nodes_out_of_service() -> None:
    mine = waiting("9", reason=HIGHER)
    hold = hold_of(mine, queue(mine, waiting("5", 1, partition="short")))
    assert (hold.kind, hold.ahead) == (HoldKind.PRIORITY, 1)
    assert hold_of(mine, queue(mine, running("1", 12))).kind is HoldKind.RESOURCES
    for lacks in ({"gpus": 16}, {"required": ("gone",)}, {"excluded": ("n0",), "gpus": 12}):
        mine = waiting("9", reason=HIGHER, **lacks)
        assert hold_of(mine, queue(mine)).kind is HoldKind.NODES


def test_a_reservation_is_told_with_when_it_begins() -> None:
    """At 00:00 now; node n0 is kept from 01:00 to 03:00."""
    kept = QueuedReservation("maint", 3600.0, 10_800.0, ("n0",))
    long = waiting("9", reason="ReqNodeNotAvail,_May_be_reserved_for_other_job", walltime_s=7200.0)
    own = waiting("8", reason="Reservation", reservation="maint")
    there = structs.replace(queue(long, own), reservations=(kept,))
    hold = hold_of(long, there)
    assert hold.says == (
        "it would still run when reservation maint of its nodes begins at 01:00, which ends at 03:00: "
        f"with --time below {(3600 - int(there.now_s)) // 60} minutes it may start"
    )
    assert hold_of(own, there).says == "the reservation maint that it asks for begins at 01:00"
    assert not hold_of(own, there).is_simulated
    short = structs.replace(long, walltime_s=600.0)
    assert there.reservation_in_the_way(short, there.now_s) is None
    assert there.reservation_in_the_way(short, 3500.0) == kept
    assert there.reservation_in_the_way(own, 3500.0) is None
