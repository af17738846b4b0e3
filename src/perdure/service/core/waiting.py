"""What a job waits for, where that is nodes that take no work, or that it is kept off. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.slurm_words import reasons

STANDS = {
    NodeState.DRAINING: "draining",
    NodeState.DRAINED: "drained",
    NodeState.DOWN: "down",
}
MOST_NAMED = 3
_CLOSED = {
    reasons.PARTITION_DOWN: "waits for its partition, which is down",
    reasons.PARTITION_INACTIVE: "waits for its partition, which is inactive",
}
_NEVER = {
    reasons.PARTITION_TIME: "waits because the time limit is above the partition's (PartitionTimeLimit)",
    "AccountNotAllowed": "waits because the partition does not admit the account (AccountNotAllowed)",
    "QOSNotAllowed": "waits because the account or the partition does not admit the QOS (QOSNotAllowed)",
    "InvalidAccount": "waits because the account is not valid (InvalidAccount)",
    "InvalidQOS": "waits because the QOS is not valid (InvalidQOS)",
    "AccountingPolicy": "waits because of a limit of the site's accounting (AccountingPolicy)",
    "MaxMemPerLimit": "waits because it asks for more memory than the partition allows (MaxMemPerLimit)",
    "PartitionConfig": "waits because its partition does not admit what it asks for (PartitionConfig)",
    "ReservationDeleted": "waits for a reservation that is gone (ReservationDeleted)",
    "ReservationInvalid": "waits for a reservation that is not valid (ReservationInvalid)",
    reasons.NEVER_SATISFIED: "waits because a job before it did not end as required (DependencyNeverSatisfied)",
}
_LIMITS = {"QOS": "the QOS", "Assoc": "the account or user", "Max": "the account or user in this QOS"}
_MAX_OF = ("PerAccount", "PerUser")  # ends of limits that begin with Max
_LATER = {
    reasons.BEGIN_TIME: "waits for the time at which it may start",
    # Slurm says so, too, where nodes that the job must have are drained or down.
    reasons.PARTITION_NODES: "waits because the number of nodes is outside the partition's limits (PartitionNodeLimit)",
    reasons.CANNOT_RUN: "waits because no node has what it asks for (BadConstraints)",
    "BurstBufferOperation": "waits because an operation on its burst buffer failed (BurstBufferOperation)",
    "BurstBufferResources": "waits for room in the burst buffer (BurstBufferResources)",
    "BurstBufferStageIn": "waits until its data are in the burst buffer (BurstBufferStageIn)",
    "BlockFreeAction": "waits until a block of nodes is free (BlockFreeAction)",
    "BlockMaxError": "waits for a block of nodes that has an error (BlockMaxError)",
    "Cleaning": "waits until its earlier start is cleaned up (Cleaning)",
    reasons.DEPENDENCY: "waits for a job before it (Dependency)",
    "FedJobLock": "waits for the other clusters of the federation (FedJobLock)",
    "FrontEndDown": "waits for a front end node, as none is in service (FrontEndDown)",
    "JobArrayTaskLimit": "waits because as many tasks of its array run as may at once (JobArrayTaskLimit)",
    "Licenses": "waits for licences that are in use (Licenses)",
    "MaxPoweredUpNodes": "waits because as many nodes are powered up as may be (MaxPoweredUpNodes)",
    "MpiPortsBusy": "waits for MPI ports that are in use (MpiPortsBusy)",
    reasons.NODE_DOWN: "waits for a node that is down (NodeDown)",
    reasons.PRIORITY: "waits for its turn: jobs of higher priority come first (Priority)",
    "Prolog": "waits for its prolog (Prolog)",
    "ReqNodeNotAvail": "waits for nodes that are out of service or reserved (ReqNodeNotAvail)",
    reasons.RESERVATION: "waits for its reservation, which has not begun or has no room (Reservation)",
    reasons.RESOURCES: "waits for nodes, GPUs or memory that others use (Resources)",
    "SchedDefer": "waits until the scheduler looks at it: it was told to start none at once (SchedDefer)",
    "WaitingForScheduling": "waits until the scheduler has looked at it (WaitingForScheduling)",
}
_HELD = {
    reasons.HELD_BY_USER: "is held by a person (JobHeldUser)",
    reasons.HELD_BY_ADMIN: "is held by an administrator (JobHeldAdmin)",
    reasons.MAX_REQUEUE: "is held by Slurm, which has put it back as often as it may (JobHoldMaxRequeue)",
    reasons.CANNOT_RUN: "is held by Slurm, as no node has what it asks for (BadConstraints)",
    reasons.SPECIAL_EXIT: "is held by the site's rule for its exit code, or by a person (SpecialExit)",
    reasons.with_blanks(reasons.PUT_BACK_AND_HELD): "is held since it was put back (scontrol requeuehold)",
    reasons.with_blanks(reasons.LAUNCH_FAILED): "is held by Slurm, as its launch failed (launch failed requeued held)",
}


def waits_in_words(job: Job, blocking: Sequence[Node], ordered_by: Mapping[str, str], held_by: str = "") -> str:
    """What a job waits for, in words; "" where that is not known or needs none. `held_by`: who had Perdure hold it.

    Who holds it comes first, and then what no node that returns would change: a closed partition, a limit, an account.
    The time comes last, as it passes by itself, and so does what may be said because nodes are missing.
    """
    if not job.state.is_waiting:
        return ""
    if job.state is JobState.HELD and (held := held_by or _HELD.get(reasons.with_blanks(job.reason), "")):
        return held
    later = _LATER.get(job.reason.partition(",")[0], "")  # ReqNodeNotAvail may name the nodes behind a comma
    return _unchanged_by_nodes(job.reason) or in_words(blocking, ordered_by) or later


def _unchanged_by_nodes(reason: str) -> str:
    """What keeps a job waiting whatever its nodes do, in words; "" where the resource manager's reason is another.

    >>> _unchanged_by_nodes("QOSMaxGRESPerUser")
    'waits because of a limit of the QOS (QOSMaxGRESPerUser)'
    """
    if reason in _CLOSED or reason in _NEVER:
        return _CLOSED.get(reason) or _NEVER[reason]
    is_limit = not reason.startswith("Max") or reason.endswith(_MAX_OF)
    whose = next((words for start, words in _LIMITS.items() if is_limit and reason.startswith(start)), "")
    return f"waits because of a limit of {whose} ({reason})" if whose else ""


def blocked_by(job: Job, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes without which `job` cannot start; () where it waits for something else.

    Nodes out of service that it must run on, or, where too few others are large enough, those that would do: out of
    service, or in service and kept off (``sbatch --exclude``, a retry elsewhere).
    """
    if not job.state.is_waiting or job.reason in _NEVER:
        return ()
    out = [node for node in nodes if node.state in STANDS]
    if job.required:
        return tuple(node for node in out if node.name in job.required)
    large = [node for node in nodes if _would_do(job, node)]
    fit = [node for node in large if node.name not in job.excluded]
    usable = sum(node.is_usable for node in fit)
    lacking = [node for node in fit if not node.is_usable]
    kept_off = [node for node in large if node.name in job.excluded and node.is_usable]
    return (*lacking, *kept_off) if usable < job.node_count <= len(fit) + len(kept_off) else ()


def _would_do(job: Job, node: Node) -> bool:
    """Whether a share of the job has room on the node when it is empty."""
    is_there = not job.partition or not node.partitions or job.may_run_in(node.partitions)
    return is_there and node.gpus * max(1, job.node_count) >= job.gpus


def in_words(blocking: Sequence[Node], ordered_by: Mapping[str, str]) -> str:
    """What a job waits for, in words; "" where `blocking` is empty. `ordered_by` says who drained a node.

    >>> in_words([Node("n4", NodeState.DRAINED, "fan is loud")], {"n4": "root"})
    'waits for n4, which is drained by root: fan is loud'
    """
    said = [_node(node, ordered_by.get(node.name, node.by)) for node in blocking[:MOST_NAMED]]
    more = len(blocking) - MOST_NAMED
    return f"waits for {'; '.join(said)}{f'; and {more} more' if more > 0 else ''}" if said else ""


def _node(node: Node, by: str) -> str:
    if node.is_usable:
        return f"{node.name}, which it is kept off"
    since = f" since {dt.datetime.fromtimestamp(node.since_s):%H:%M}" if node.since_s is not None else ""
    who = f" by {by}" if by and node.state is not NodeState.DOWN else ""
    why = f": {node.reason}" if node.reason else ""
    return f"{node.name}, which is {STANDS[node.state]}{since}{who}{why}"
