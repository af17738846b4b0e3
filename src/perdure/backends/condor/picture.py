"""Jobs, attempts and nodes, from the ads of the queue, of the history and of the pool. Pure.

An attempt's number is HTCondor's own number of the run (``NumShadowStarts``): the job's record keeps it, and it grows
with each start.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping

from perdure.backends.condor.ads import (
    ClassAd,
    expression,
    instant,
    is_true,
    job_id,
    machine_of,
    number,
    run_number,
    text,
    whole,
)
from perdure.backends.condor.ends import HELD_BY_PERSONS, SPOOLING, end_of
from perdure.backends.condor.requirements import StartPlace
from perdure.backends.owner_requests import owner_requests
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState

JOB_FIELDS = (
    "AllRemoteHosts,AllowedExecuteDuration,AllowedJobDuration,ClusterId,Cmd,CompletionDate,CronMinute,"
    "EnteredCurrentStatus,EpochWriteDate,Err,ExitBySignal,ExitCode,ExitSignal,GPUsProvisioned,HoldReason,"
    "HoldReasonCode,InteractiveJob,Iwd,JobBatchName,JobCurrentStartDate,JobStatus,JobUniverse,LastRemoteHost,"
    "LastVacateTime,MaxHosts,NumHolds,NumShadowStarts,OnExitHold,Out,Owner,Perdure,PerdureComment,PerdureDoneExclude,"
    "PerdureDoneHold,PerdureDonePreempt,PerdureDoneRequeue,ProcId,QDate,RemoteHost,RemoveReason,RequestGPUs,"
    "Requirements,ShadowBday,VacateReason,VacateReasonCode"
)
NODE_FIELDS = (
    "DrainReason,Draining,EnteredCurrentState,GPUs,JobId,LastHeardFrom,Machine,Name,RetirementTimeRemaining,SlotType,"
    "State,TotalGPUs"
)
IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING, SUSPENDED = range(1, 8)
ACTIVE = (RUNNING, TRANSFERRING, SUSPENDED)
PARALLEL = 11
BY_PERDURE = "perdure"
GIVEN_UP = f"{BY_PERDURE} down:"  # how the reason of a node that was set down begins
_NODE_NUMBER = "#pArAlLeLnOdE#"  # HTCondor puts the number of a gang's task here
_NO_FILE = frozenset({"", "/dev/null"})
_STATES = {
    IDLE: JobState.PENDING,
    RUNNING: JobState.RUNNING,
    REMOVED: JobState.CANCELLED,
    COMPLETED: JobState.COMPLETED,
    TRANSFERRING: JobState.RUNNING,
    SUSPENDED: JobState.SUSPENDED,
}


def job_of(cluster: str, ad: ClassAd, in_queue: bool) -> Job:
    """A job; one that has left the queue cannot be put back."""
    placement, state, runs = StartPlace.of(ad), state_of(ad), run_number(ad)
    asked = owner_requests(f"perdure: {said}" if (said := text(ad, "Perdure")) else "")
    hosts = hosts_wanted(ad)
    walltimes = [each for name in ("AllowedExecuteDuration", "AllowedJobDuration") if (each := number(ad, name))]
    is_held = whole(ad, "JobStatus") == HELD
    return Job(
        cluster=cluster,
        job_id=job_id(ad),
        name=text(ad, "JobBatchName") or os.path.basename(text(ad, "Cmd")),
        user=text(ad, "Owner"),
        state=state,
        submit_s=instant(ad, "QDate") or 0.0,
        gpus=whole(ad, "RequestGPUs") * hosts,
        node_count=hosts,
        restart_nodes=asked.nodes if is_gang(ad) else None,
        walltime_s=min(walltimes, default=None),
        may_requeue=in_queue and (is_held or expression(ad, "OnExitHold") not in ("", "false")),
        wish=asked.retry,
        reason=text(ad, "HoldReason") if is_held else text(ad, "RemoveReason") if state is JobState.CANCELLED else "",
        excluded=placement.excluded,
        required=placement.required,
        required_by="requirements",
        restarts=max(0, runs - 1),
        eligible_s=float(placement.not_before_s) if placement.not_before_s else None,
        command=text(ad, "Cmd"),
        work_dir=text(ad, "Iwd"),
        requeue_at_timeout=asked.requeue_at_timeout,
        misread=asked.misread,
        is_batch=not is_true(ad, "InteractiveJob"),
        is_cron="cronminute" in ad,
    )


def state_of(ad: ClassAd) -> JobState:
    """A job that HTCondor holds because of how it ended has failed: only a decision starts it again."""
    status = whole(ad, "JobStatus")
    if status == HELD:
        if whole(ad, "HoldReasonCode") == SPOOLING:
            return JobState.PENDING
        is_persons = whole(ad, "HoldReasonCode") in HELD_BY_PERSONS or not run_number(ad)
        return JobState.HELD if is_persons else JobState.FAILED
    if status == COMPLETED and (whole(ad, "ExitCode") or is_true(ad, "ExitBySignal")):
        return JobState.FAILED
    return _STATES.get(status, JobState.PENDING)


def is_gang(ad: ClassAd) -> bool:
    return whole(ad, "JobUniverse") == PARALLEL


def hosts_wanted(ad: ClassAd) -> int:
    return max(1, whole(ad, "MaxHosts")) if is_gang(ad) else 1


def is_active(ad: ClassAd) -> bool:
    return whole(ad, "JobStatus") in ACTIVE


def running_attempt(cluster: str, ad: ClassAd) -> Attempt | None:
    """The attempt of a job that runs; None where it does not, or does not say where yet."""
    nodes = nodes_of(ad)
    if not is_active(ad) or not nodes or not run_number(ad):
        return None
    is_stopped = whole(ad, "JobStatus") == SUSPENDED
    return _attempt(cluster, ad, nodes, AttemptState.SUSPENDED if is_stopped else AttemptState.RUNNING)


def ended_attempt(cluster: str, run: ClassAd, job: ClassAd | None, down: frozenset[str]) -> Attempt:
    """The attempt of a run that is over; `job` and `down` as in `end_of`."""
    nodes = nodes_of(run)
    end = end_of(run, job, down, nodes)
    lost = tuple(name for name in nodes if name in down or len(nodes) == 1) if end.lost_node else ()
    ended_s = instant(run, "EpochWriteDate") or instant(run, "CompletionDate") or instant(run, "EnteredCurrentStatus")
    start_s = _start_s(run)
    return _attempt(
        cluster, run, nodes, end.state, max(start_s, ended_s or 0.0), end.exit_code, end.signal, end.reason, lost
    )


def _attempt(
    cluster: str,
    ad: ClassAd,
    nodes: tuple[str, ...],
    state: AttemptState,
    end_s: float | None = None,
    exit_code: int = 0,
    signal: int = 0,
    reason: str = "",
    lost: tuple[str, ...] = (),
) -> Attempt:
    paths = own_paths(ad)
    return Attempt(
        AttemptId(cluster, job_id(ad), run_number(ad)),
        state,
        nodes,
        _start_s(ad),
        end_s,
        exit_code,
        signal,
        reason,
        gpus=(whole(ad, "GPUsProvisioned") or whole(ad, "RequestGPUs")) * max(1, len(nodes)),
        user=text(ad, "Owner"),
        stdout=paths[0],
        stderr=paths[1],
        failed_nodes=lost,
    )


def _start_s(ad: ClassAd) -> float:
    return instant(ad, "JobCurrentStartDate") or instant(ad, "ShadowBday") or 0.0


def nodes_of(ad: ClassAd) -> tuple[str, ...]:
    """Where a run was, each node once."""
    told = text(ad, "AllRemoteHosts") if is_gang(ad) else ""
    hosts = (told or text(ad, "RemoteHost") or text(ad, "LastRemoteHost")).split(",")
    return tuple(dict.fromkeys(machine_of(host.strip()) for host in hosts if host.strip()))


def own_paths(ad: ClassAd, rank: int = 0) -> tuple[str, str]:
    """Paths of standard output and errors of one task; "" where it has none."""
    told = (text(ad, name).replace(_NODE_NUMBER, str(rank)) for name in ("Out", "Err"))
    out, err = ("" if path in _NO_FILE else os.path.join(text(ad, "Iwd"), path) for path in told)
    return out, err


# -- nodes


def nodes_in(ads: Iterable[ClassAd]) -> dict[str, Node]:
    """The machines of a pool by name, from the ads of their slots."""
    slots: dict[str, list[ClassAd]] = defaultdict(list)
    for ad in ads:
        if machine := text(ad, "Machine"):
            slots[machine].append(ad)
    return {machine: _node(machine, mine) for machine, mine in sorted(slots.items())}


def heard(ads: Iterable[ClassAd]) -> dict[str, float]:
    """When the collector last heard of each machine."""
    last: dict[str, float] = {}
    for ad in ads:
        machine = text(ad, "Machine")
        last[machine] = max(last.get(machine, 0.0), instant(ad, "LastHeardFrom") or 0.0)
    return last


def _node(machine: str, slots: list[ClassAd]) -> Node:
    is_draining = any(is_true(slot, "Draining") for slot in slots)
    reason = next((told for slot in slots if (told := text(slot, "DrainReason"))), "")
    is_ours = reason.startswith(f"{BY_PERDURE} ")
    if is_draining and reason.startswith(GIVEN_UP):
        state = NodeState.DOWN
    elif is_draining:
        state = NodeState.DRAINING if any(_is_busy(slot) for slot in slots) else NodeState.DRAINED
    elif all(text(slot, "State") == "Owner" for slot in slots):
        state, reason = NodeState.DRAINED, "its START expression lets no job in"
    else:
        state, reason = NodeState.UP, ""
    return Node(
        machine,
        state,
        reason=words_of(reason) if is_ours else reason,
        gpus=max((whole(slot, "TotalGPUs") for slot in slots), default=0),
        gpus_used=sum(whole(slot, "GPUs") for slot in slots if _is_busy(slot)),
        since_s=None if state is NodeState.UP else max(instant(s, "EnteredCurrentState") or 0.0 for s in slots) or None,
        by=BY_PERDURE if is_ours and is_draining else "",
        is_set_down=state is NodeState.DOWN,
    )


def _is_busy(slot: ClassAd) -> bool:
    return bool(text(slot, "JobId")) and text(slot, "SlotType") != "Partitionable"


def words_of(reason: str) -> str:
    """What was said for a person of a node that Perdure drained: the reason without its key."""
    return reason.partition(": ")[2]


def gone(node: Node, now: float) -> Node:
    """A machine of which the collector has heard nothing any more."""
    if node.state is NodeState.DOWN and not node.is_set_down:
        return node
    words = "the collector has no word of it: its startd is gone, or cannot reach it"
    return Node(node.name, NodeState.DOWN, words, node.gpus, 0, now)


def changed_runs(before: Mapping[str, ClassAd], now: Mapping[str, ClassAd]) -> bool:
    """Whether a run has ended, or may have, between two looks at the queue."""
    left = before.keys() - now.keys()
    return bool(left) or any(
        _phase(before[key]) != _phase(ad) if key in before else run_number(ad) > 0 for key, ad in now.items()
    )


def _phase(ad: ClassAd) -> tuple[int, bool]:
    return run_number(ad), is_active(ad)
