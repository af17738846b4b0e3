"""Which notices follow from what the journal tells. Pure: facts and what was told before in, notices out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from perdure.coordination.record import Component, ExceptionOutcome, ExceptionRecord, ExceptionState
from perdure.model.events import NodeChanged, SightChanged
from perdure.model.jobs import Job
from perdure.model.nodes import NodeState
from perdure.retry.decide import Decision, DecisionKind
from perdure.service.core.messages import ExceptionChanged
from perdure.service.notices.notice import MAX_DETAIL, MAX_NAME, Kind, Notice, of_text

STALE_S = 86_400.0  # what happened longer ago is told to nobody
MAX_SUBJECT = 500  # characters
ROOM_AGAIN = 1.25  # times the limit, that a disk has free before it counts as having room again


@dataclass(frozen=True, slots=True)
class DiskSeen:
    """Room on the disk of the state directory."""

    time_s: float
    free_mib: int


@dataclass(frozen=True, slots=True)
class NoticeFact:
    """An event of the journal, with what is known of the job and the decision that it is about."""

    event: NodeChanged | SightChanged | ExceptionChanged | DiskSeen
    job: Job | None = None
    decision: Decision | None = None


def notices_of(
    facts: Iterable[NoticeFact], told: Mapping[str, Kind], now: float, disk_low_mib: int = 0, *, armed: bool = True
) -> tuple[Notice, ...]:
    """The notices that follow from `facts`, in their order.

    `told` is the kind of the latest notice about each subject. What was sent, what happened longer than a day ago,
    and the end of what nobody got a notice of, give none; nor does a retry that Perdure is not `armed` to carry out.
    """
    latest = dict(told)
    found = []
    for fact in facts:
        if now - fact.event.time_s > STALE_S:
            continue
        for notice in _of(fact, disk_low_mib):
            last = latest.get(notice.subject)
            ends = notice.kind.takes_back
            if notice.kind is Kind.JOB_RETRIED and not armed:
                continue
            if last is not notice.kind and (not ends or last in ends):
                latest[notice.subject] = notice.kind
                found.append(notice)
    return tuple(found)


def subjects_of(facts: Iterable[NoticeFact], disk_low_mib: int = 0) -> frozenset[str]:
    """What `notices_of` may ask `told` for."""
    return frozenset(notice.subject for fact in facts for notice in _of(fact, disk_low_mib))


def _of(fact: NoticeFact, disk_low_mib: int) -> Iterator[Notice]:
    match fact.event:
        case NodeChanged(time_s=time_s, node=node):
            if kind := _NODE_KINDS.get(node.state):
                partition = ",".join(node.partitions)
                yield _notice(
                    kind, f"node:{node.name}", time_s, f"node {node.name}", "", partition, node.reason, "/nodes"
                )
        case SightChanged(time_s=time_s, part=part, text=text):
            kind = Kind.MANAGER_UNREACHABLE if text else Kind.MANAGER_BACK
            yield _notice(kind, f"part:{part}", time_s, part, detail=text)
        case DiskSeen(time_s=time_s, free_mib=free_mib):
            if free_mib < disk_low_mib:
                yield _notice(Kind.DISK_LOW, "disk", time_s, "state directory", detail=f"{free_mib} MiB are free")
            elif free_mib >= disk_low_mib * ROOM_AGAIN:
                yield _notice(Kind.DISK_BACK, "disk", time_s, "state directory", detail=f"{free_mib} MiB are free")
        case ExceptionChanged(time_s=time_s, record=record):
            yield from _of_exception(time_s, record, fact.job, fact.decision)


_NODE_KINDS = {
    NodeState.DRAINING: Kind.NODE_DRAINED,
    NodeState.DRAINED: Kind.NODE_DRAINED,
    NodeState.DOWN: Kind.NODE_DOWN,
    NodeState.UP: Kind.NODE_BACK,
}


def _of_exception(
    time_s: float, record: ExceptionRecord, job: Job | None, decision: Decision | None
) -> Iterator[Notice]:
    name, user, partition = _about(record), job.user if job else "", job.partition if job else ""
    if job is not None:
        name = f"job {job.job_id} ({job.name})"
    path = f"/exceptions/{quote(record.id, safe='')}"
    if record.state is ExceptionState.ESCALATED:
        if record.outcome is ExceptionOutcome.OPEN:
            yield _notice(Kind.PERSON_NEEDED, record.id, time_s, name, user, partition, _why(record), path)
    elif record.type.startswith("suspect."):
        if record.outcome is ExceptionOutcome.OPEN:
            yield _notice(Kind.SUSPECT, record.id, time_s, name, user, partition, record.note, path)
    elif decision is not None and record.owner is Component.SCHEDULER and job is not None:
        kind = Kind.JOB_STOPPED if decision.kind is DecisionKind.STOP else Kind.JOB_RETRIED
        page = f"/jobs/{quote(job.job_id, safe='')}"
        yield _notice(kind, record.id, time_s, name, user, partition, decision.told, page)
        if decision.limit:
            yield _notice(Kind.BUDGET_SPENT, f"limit:{record.id}", time_s, name, user, partition, decision.limit, page)


def _about(record: ExceptionRecord) -> str:
    """What an exception is about, in a few words."""
    subject = record.subject
    if subject.job_id:
        return f"job {subject.job_id}"
    if subject.nodes:
        return f"node {subject.nodes[0]}" + (f" and {len(subject.nodes) - 1} more" if subject.nodes[1:] else "")
    return subject.resource or record.type


def _why(record: ExceptionRecord) -> str:
    """What it is, and what was said of it last."""
    said = record.verdicts[-1].note if record.verdicts else record.note
    return f"{record.type}: {said}" if said else record.type


def _notice(
    kind: Kind, subject: str, time_s: float, name: str, user: str = "", partition: str = "", detail: str = "",
    path: str = "/",
) -> Notice:  # fmt: skip
    return Notice(
        kind, of_text(subject, MAX_SUBJECT), time_s, of_text(name, MAX_NAME), of_text(user, MAX_NAME),
        of_text(partition, MAX_NAME), of_text(detail, MAX_DETAIL), path,
    )  # fmt: skip
