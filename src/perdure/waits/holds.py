"""What holds a waiting job, in words: the manager's own reason, and what the queue shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

import re2
from msgspec import structs

from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.slurm_words import reasons
from perdure.waits.awaited import not_foreseen
from perdure.waits.limits import LimitInTheWay, amount, limit_in_the_way
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, ahead_of

MAX_NAMED = 3  # jobs or nodes named in a sentence


class HoldKind(StrEnum):
    """Why a job does not run."""

    NOTHING = "nothing"  # it runs, or can start at the manager's next pass
    PRIORITY = "priority"  # others are considered before it
    RESOURCES = "resources"  # it is next, and its nodes are busy
    LIMIT = "limit"  # of its QOS, account, user, partition or array
    RESERVATION = "reservation"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    HELD = "held"  # by a person, or by the manager until a person releases it
    PARTITION = "partition"  # it is down
    NODES = "nodes"  # that it needs are down or drained
    LICENCES = "licences"
    NEVER = "never"  # nothing will start it as it is
    OTHER = "other"  # in the manager's own words


@dataclass(frozen=True, slots=True)
class HeldBy:
    """What holds a job, and how many are before it."""

    kind: HoldKind
    says: str
    ahead: int = 0  # waiting jobs that are considered before it
    ahead_gpus: int = 0  # that they ask for
    until_s: float | None = None  # nothing changes before this instant
    can_start: bool = True  # without that anybody changes something
    not_foreseen: str = ""  # why futures do not know when it passes; "" where they do

    @property
    def is_simulated(self) -> bool:
        """Whether futures know when it passes; when nodes return and reservations begin or end they do not."""
        return not self.not_foreseen and self.kind not in (HoldKind.NODES, HoldKind.RESERVATION)


def not_told(hold: HeldBy) -> str:
    """Why no start is forecast, in the place of one."""
    if not hold.can_start:
        return "not as it is"
    why = hold.not_foreseen or "when nodes return, and reservations begin or end, is not simulated"
    return f"not forecast: {why}"


_FIXED: dict[str, tuple[HoldKind, str]] = {
    reasons.NEVER_SATISFIED: (HoldKind.NEVER, "a job that it depends on did not end as the dependency asks"),
    reasons.HELD_BY_USER: (HoldKind.HELD, "its owner holds it: `scontrol release {job}`"),
    reasons.HELD_BY_ADMIN: (HoldKind.HELD, "an operator, or Perdure, holds it: only an operator can release it"),
    reasons.SPECIAL_EXIT: (HoldKind.HELD, "this site holds jobs that end with its exit code: `scontrol release {job}`"),
    reasons.MAX_REQUEUE: (HoldKind.HELD, "Slurm put it back too often, and holds it: `scontrol release {job}`"),
    reasons.PARTITION_DOWN: (HoldKind.PARTITION, "its partition {partition} is down: an operator must set it up"),
    reasons.PARTITION_INACTIVE: (
        HoldKind.PARTITION,
        "its partition {partition} is inactive: an operator must set it up",
    ),
    reasons.PARTITION_TIME: (HoldKind.NEVER, "it asks for more time than partition {partition} allows: lower --time"),
    reasons.PARTITION_NODES: (HoldKind.NEVER, "it asks for more nodes than {partition} allows or has in service"),
    "PartitionConfig": (HoldKind.NEVER, "it breaks a limit of partition {partition}: change what it asks for"),
    reasons.CANNOT_RUN: (HoldKind.NEVER, "no node has what it asks for: change what it asks for"),
    "InvalidAccount": (HoldKind.NEVER, "its account {account} is not valid: submit it with another --account"),
    "InvalidQOS": (HoldKind.NEVER, "its QOS {qos} is not valid: submit it with another --qos"),
    "AccountNotAllowed": (HoldKind.NEVER, "partition {partition} does not take its account {account}"),
    "QOSNotAllowed": (HoldKind.NEVER, "partition {partition} does not take its QOS {qos}"),
    "Licenses": (HoldKind.LICENCES, "the licences that it asks for are in use"),
    "JobArrayTaskLimit": (HoldKind.LIMIT, "its array lets only so many tasks run at once (--array=...%N)"),
    reasons.RESERVATION: (HoldKind.RESERVATION, "the reservation that it asks for has not begun, or is full"),
    "ReservationDeleted": (HoldKind.NEVER, "the reservation that it asks for is gone: change --reservation"),
    reasons.NODE_DOWN: (HoldKind.NODES, "a node that it must have is down"),
    "Cleaning": (HoldKind.RESOURCES, "its last start still clears up"),
}  # fmt: skip
_LIMIT = re2.compile(r"(QOS|Assoc|Association)(Grp|Max|Min)?(\w*?)(Limit)?")
_RUNNING_LIMIT = re2.compile(
    r"QOS(Grp|Max)(GRES|Cpu|Node)(PerUser)?(Limit)?|QOSGrpJobsLimit|QOSMaxJobsPerUserLimit"
    r"|Assoc(Grp)(GRES|Cpu|Node|Jobs)(Limit)?|AssocMaxJobsLimit"
)
_SCOPES = (
    ("PerUser", "of one user"),
    ("PerAccount", "of one account"),
    ("PerJob", "of one job"),
    ("PerNode", "a node"),
)
_RESOURCES = (
    ("RunMinutes", "time of running jobs"), ("Minutes", "compute time"), ("Wall", "time"), ("GRES", "GPUs"),
    ("Cpu", "CPUs"), ("CPU", "CPUs"), ("Mem", "memory"), ("Node", "nodes"), ("Submit", "submitted jobs"),
    ("Job", "running jobs"), ("Lic", "licences"), ("Billing", "billed resources"), ("BB", "burst buffer"),
    ("Energy", "energy"),
)  # fmt: skip
_NODES_BUSY = (
    "Nodes_required",
    "Nodes required",
)  # "... DOWN, DRAINED or reserved for jobs in higher priority partitions"
_NODES_OUT = ("ReqNodeNotAvail", *_NODES_BUSY)
_DEPENDS = re2.compile(r"(\w+):(\d{1,10}(?:_\d{1,10}|_\*)?)")
_CONDITIONS = {
    "after": "job {} to start",
    "afterany": "job {} to end",
    "afterok": "job {} to end well",
    "afternotok": "job {} to fail",
    "aftercorr": "the like task of {} to end well",
    "afterburstbuffer": "job {} to end",
}


def hold_of(job: QueuedJob, queue: Queue, zone: tzinfo = UTC, limits: SiteLimits | None = None) -> HeldBy:
    """What keeps the job from starting. Sentences give times in `zone`."""
    if job.is_running:
        return HeldBy(HoldKind.NOTHING, "it runs")
    if job.is_held:  # whatever else it waits for
        return _held(job)
    if job.dependency and job.reason in ("Dependency", "", "None"):
        says = f"it waits for {depends_on(job.dependency)}"
        return HeldBy(HoldKind.DEPENDENCY, says, not_foreseen=not_foreseen(job, queue))
    if job.reason == "BeginTime" or (job.eligible_s or 0) > queue.now_s:
        when = f"before {_clock(job.eligible_s, queue.now_s, zone)}" if job.eligible_s else "yet"
        return HeldBy(
            HoldKind.BEGIN_TIME,
            f"it is not to start {when} (--begin, or the delay after a requeue)",
            until_s=job.eligible_s,
        )
    if (refused := _refused(job, queue)) is not None:
        return refused
    if (told := _told(job)) is not None:
        return _in_reservation(told, job, queue, zone)
    if job.reason.startswith(_NODES_BUSY) and _fits_in_service(job, queue):
        return _in_line(structs.replace(job, reason="Priority"), queue, zone)
    if job.reason.startswith(_NODES_OUT):
        return _without_nodes(job, queue, zone)
    known = limit_in_the_way(job, queue, limits) if limits is not None and _may_be_limited(job) else None
    if known is not None:
        return _by_limit(job, known, queue.now_s, zone)
    if job.reason.startswith(("QOS", "Assoc")):
        return HeldBy(HoldKind.LIMIT, limit_in_words(job))
    return _in_line(job, queue, zone)


def _held(job: QueuedJob) -> HeldBy:
    """Nothing starts it until a person releases it."""
    told = _told(job)
    if told is not None and not told.can_start:
        return told
    says = f"it is held ({job.reason or 'no reason given'}): `scontrol release {job.job_id}`"
    return HeldBy(HoldKind.HELD, says, can_start=False)


def _told(job: QueuedJob) -> HeldBy | None:
    """What the manager's reason alone tells; None where the queue must be looked at."""
    for reason, (kind, says) in _FIXED.items():
        if job.reason == reason or job.reason.startswith(f"{reason}("):
            may = kind not in (HoldKind.NEVER, HoldKind.HELD, HoldKind.PARTITION)
            return HeldBy(kind, says.format(**_names(job)), can_start=may)
    return None


def _refused(job: QueuedJob, queue: Queue) -> HeldBy | None:
    """What its partitions would say of a job for which the manager has given no reason yet, as one not submitted."""
    known = [each for name in job.partitions if (each := queue.partition(name)) is not None]
    if job.reason not in ("", "None") or not known:
        return None
    reasons = {_refusal(job, each) for each in known}
    if "" in reasons:
        return None
    kind, says = _FIXED[min(reasons)]
    return HeldBy(kind, says.format(**_names(job)), can_start=False)


def _refusal(job: QueuedJob, partition: QueuedPartition) -> str:
    if not partition.is_up:
        return "PartitionDown"
    if partition.max_time_s is not None and (job.walltime_s or 0.0) > partition.max_time_s:
        return "PartitionTimeLimit"
    return "PartitionNodeLimit" if partition.max_nodes is not None and job.nodes > partition.max_nodes else ""


def limit_in_words(job: QueuedJob) -> str:
    """A limit of the accounting database, from a reason such as ``QOSMaxGRESPerUser``.

    >>> from perdure.model.jobs import JobState
    >>> limit_in_words(QueuedJob("7", "mira", JobState.PENDING, ("main",), reason="QOSMaxGRESPerUser", qos="normal"))
    'QOS normal limits the GPUs of one user: it can start when other jobs of mira end (QOSMaxGRESPerUser)'
    """
    found = _LIMIT.fullmatch(job.reason)
    owner = f"QOS {job.qos}" if job.reason.startswith("QOS") else f"account {job.account}"
    what = next((words for key, words in _RESOURCES if found and key in found[3]), "what its jobs may have")
    whole = found is not None and found[2] == "Grp"
    scope = next(
        (words for key, words in _SCOPES if key in job.reason), "of all its jobs together" if whole else "of one user"
    )
    if scope == "of one job" or (found and found[2] == "Min"):
        return f"{owner} limits the {what} of one job: change what it asks for ({job.reason})"
    others = f"jobs of {owner}" if whole else f"other jobs of {job.user}"
    if what == "compute time":
        return f"{owner} has used up its {what}: it can start as that is forgotten or raised ({job.reason})"
    return f"{owner} limits the {what} {scope}: it can start when {others} end ({job.reason})"


def _may_be_limited(job: QueuedJob) -> bool:
    """Whether the manager says so in words of a limit on running jobs, or has said nothing yet."""
    return job.reason in ("", "None") or _RUNNING_LIMIT.fullmatch(job.reason) is not None


def _by_limit(job: QueuedJob, found: LimitInTheWay, now_s: float, zone: tzinfo) -> HeldBy:
    whom = "one user" if found.of_user else "all its jobs together"
    if found.tres == "" and found.most == 1:
        allows = f"{found.holder} allows one running job to {whom}"
    else:
        allows = f"{found.holder} allows {found.most} {found.what} to {whom}"
    said = f" ({job.reason})" if job.reason not in ("", "None") else ""
    if found.never:
        return HeldBy(HoldKind.NEVER, f"{allows}, and it asks for {found.asked}{said}: ask for less", can_start=False)
    its = [each for each in found.jobs if amount(each, found.tres)]
    jobs = "job" if len(its) == 1 else "jobs"
    ids = named([each.job_id if found.of_user else f"{each.job_id} of {each.user}" for each in its])
    whose = f"{job.user}'s {jobs} {ids}" if found.of_user else f"{jobs} {ids}"
    until_s = found.free_s(now_s)
    when = f", by their time limits at {_clock(until_s, now_s, zone)}" if until_s is not None else ""
    used = f"{found.used} are in use by {whose}" if found.used != 1 else f"one is in use by {whose}"
    return HeldBy(HoldKind.LIMIT, f"{allows}; {used}: it can start when enough of them end{when}{said}")


def named(ids: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(ids) - MAX_NAMED} more" if len(ids) > MAX_NAMED else ""
    return ", ".join(ids[:MAX_NAMED]) + more


def depends_on(dependency: str) -> str:
    """What must happen first, from ``afterok:12(unfulfilled),afterany:9``.

    >>> depends_on("afterok:12(unfulfilled),afterany:9(unfulfilled)")
    'job 12 to end well and job 9 to end'
    """
    if "singleton" in dependency:
        return "earlier jobs of its owner and name to end"
    parts = [_CONDITIONS.get(kind, "job {}").format(other) for kind, other in _DEPENDS.findall(dependency)]
    joined = " or " if "?" in dependency else " and "
    return joined.join(parts[:MAX_NAMED]) + (" ..." if len(parts) > MAX_NAMED else "") if parts else dependency


def _in_line(job: QueuedJob, queue: Queue, zone: tzinfo) -> HeldBy:
    """It waits for its turn: behind others, or as the next one."""
    before = [each for each in ahead_of(job, queue) if (told := _told(each)) is None or told.can_start]
    ahead, gpus = sum(each.tasks for each in before), sum(each.gpus * each.tasks for each in before)
    where = " or ".join(job.partitions)
    if before and job.reason != "Resources":
        first = before[0]
        count = "1 job is" if ahead == 1 else f"{ahead} jobs are"
        what = f"; the first, {first.job_id} of {first.user}, waits for {_size(first)}"
        return HeldBy(
            HoldKind.PRIORITY, f"{count} considered before it in {where} ({_total(before)}){what}", ahead, gpus
        )
    if job.reason in ("Resources", "Priority"):
        until, when = _enough_free(job, queue), ""
        if until is not None and until > queue.now_s:
            when = f"; by the time limits of what runs there, enough is free at {_clock(until, queue.now_s, zone)}"
        return HeldBy(HoldKind.RESOURCES, f"it needs {_size(job)}, and {_free(job, queue)}{when}", ahead, gpus)
    if job.reason in ("", "None"):
        return HeldBy(HoldKind.NOTHING, "Slurm has not considered it yet, or has just done so", ahead, gpus)
    return HeldBy(HoldKind.OTHER, f"Slurm says {job.reason}", ahead, gpus)


def _in_reservation(told: HeldBy, job: QueuedJob, queue: Queue, zone: tzinfo) -> HeldBy:
    """What is told of a job in a reservation that is to begin, with when that is."""
    own = next((each for each in queue.reservations if each.name == job.reservation), None)
    if told.kind is not HoldKind.RESERVATION or own is None or own.begin_s <= queue.now_s:
        return told
    says = f"the reservation {own.name} that it asks for begins at {_clock(own.begin_s, queue.now_s, zone)}"
    return replace(told, says=says, until_s=own.begin_s)


def _without_nodes(job: QueuedJob, queue: Queue, zone: tzinfo) -> HeldBy:
    """Nodes that it needs are out of service, or kept for others."""
    if "reserved" in job.reason.lower() and not job.reason.startswith(_NODES_BUSY):
        found = queue.reservation_in_the_way(job, queue.now_s)
        if found is None:
            says = "it would still run when a reservation of its nodes begins: with a shorter --time it may start"
            return HeldBy(HoldKind.RESERVATION, says)
        begin, end = (_clock(at_s, queue.now_s, zone) for at_s in (found.begin_s, found.end_s))
        minutes = int(found.begin_s - queue.now_s) // 60
        says = f"it would still run when reservation {found.name} of its nodes begins at {begin}, which ends at {end}"
        return HeldBy(HoldKind.RESERVATION, f"{says}: with --time below {minutes} minutes it may start")
    wanted = job.required or tuple(node.name for node in queue.nodes_of(job.partitions))
    out = [node.name for node in queue.nodes if node.name in wanted and not node.is_usable]
    says = f"nodes that it needs are down, drained or reserved{f' ({named(out)})' if out else ''}"
    return HeldBy(HoldKind.NODES, says)


def _fits_in_service(job: QueuedJob, queue: Queue) -> bool:
    """Whether the nodes in service could run it, if nobody else were there."""
    nodes = [node for node in queue.nodes_of(job.partitions) if node.is_usable and node.name not in job.excluded]
    names = {node.name for node in nodes}
    enough = sum(node.gpus for node in nodes) >= job.gpus and len(nodes) >= job.nodes
    return enough and names.issuperset(job.required)


def _enough_free(job: QueuedJob, queue: Queue) -> float | None:
    """When its GPUs (or nodes) are free if every job runs to its limit and nobody else comes; None if that is open."""
    nodes = [node for node in queue.nodes_of(job.partitions) if node.is_usable]
    free = sum(_unit(job, node.gpus, 1) for node in nodes)
    ends = []
    for each, gpus, its_nodes in _running_on(nodes, job, queue):
        held = _unit(job, gpus, its_nodes)
        free -= held
        if each.walltime_s is not None and each.start_s is not None:
            ends.append((max(queue.now_s, each.start_s + each.walltime_s), held))
    at = queue.now_s
    for end_s, held in sorted(ends):
        if free >= _unit(job, job.gpus, job.nodes):
            break
        at, free = end_s, free + held
    return at if free >= _unit(job, job.gpus, job.nodes) else None


def _running_on(nodes: Sequence[QueuedNode], job: QueuedJob, queue: Queue) -> Iterator[tuple[QueuedJob, int, int]]:
    """Who runs on nodes that a job may have, by way of whichever partition; with the GPUs and nodes held there."""
    names = {node.name for node in nodes}
    for each in queue.running():
        if each.running_on:
            there = sum(name in names for name in each.running_on)
            if there:
                yield each, round(each.gpus * there / len(each.running_on)), there
        elif not set(each.partitions).isdisjoint(job.partitions):  # where it runs is not known
            yield each, each.gpus, each.nodes


def _unit(job: QueuedJob, gpus: int, nodes: int) -> int:
    return gpus if job.gpus else nodes


def _free(job: QueuedJob, queue: Queue) -> str:
    nodes = [node for node in queue.nodes_of(job.partitions) if node.is_usable]
    where = " or ".join(job.partitions)
    if not job.gpus:
        return f"the {len(nodes)} nodes of {where} are busy"
    used = sum(gpus for _, gpus, _ in _running_on(nodes, job, queue))
    total = sum(node.gpus for node in nodes)
    return f"{max(0, total - used)} of {total} GPUs in {where} are free"


def _size(job: QueuedJob) -> str:
    nodes = f" on {job.nodes} nodes" if job.nodes > 1 else ""
    if job.gpus:
        return f"{job.gpus} GPU{'s' if job.gpus > 1 else ''}{nodes}"
    return f"{job.nodes} nodes" if job.nodes > 1 else f"{job.cpus} CPUs"


def _total(jobs: Sequence[QueuedJob]) -> str:
    gpus = sum(each.gpus * each.tasks for each in jobs)
    return f"{gpus} GPUs" if gpus else f"{sum(each.nodes * each.tasks for each in jobs)} nodes"


def _names(job: QueuedJob) -> dict[str, str]:
    return {"job": job.job_id, "partition": " or ".join(job.partitions), "account": job.account, "qos": job.qos}


def _clock(seconds: float | None, now_s: float, zone: tzinfo) -> str:
    if seconds is None:
        return "an unknown time"
    then, today = datetime.fromtimestamp(seconds, zone), datetime.fromtimestamp(now_s, zone)
    return then.strftime("%H:%M" if then.date() == today.date() else "%b %d %H:%M")
