"""A quota that is exceeded: the fewest bytes that fix it are moved, each by the one job that wrote them, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from perdure.coordination.cover import smallest_cover
from perdure.coordination.handlers.shared import hold_waiting, told
from perdure.coordination.record import START, Component, ExceptionRecord
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import SiteFacts
from perdure.coordination.source import Source
from perdure.model.identity import AttemptId

USAGE = "usage"  # key of the annotation that tells who uses how much
MAX_WRITERS = 10_000
_TRUSTED = (Component.SCHEDULER.value, Component.RESOURCE_MANAGER.value)


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes there may be, are, and could be moved away by each job."""

    limit: int
    used: int
    movable: Mapping[str, int]  # by job id

    @property
    def overrun(self) -> int:
        return max(0, self.used - self.limit)


def usage_of(record: ExceptionRecord) -> Usage | None:
    """What the site's latest annotation ``usage`` says: ``{"limit": B, "used": B, "by": {JOB: B}}``; None without.

    Jobs are moved on it, so what a user says of it, or a handler in a job's own level, does not count.
    """
    for annotation in reversed(record.annotations):
        said_by = annotation.component
        if annotation.key == USAGE and (Source.of(said_by).is_of_the_site or said_by.startswith(_TRUSTED)):
            return _usage(annotation.value)
    return None


def _usage(text: str) -> Usage | None:
    try:
        found = json.loads(text)
        limit, used, by = found["limit"], found["used"], found["by"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(by, dict) or len(by) > MAX_WRITERS:
        return None
    if not all(_is_bytes(number) for number in (limit, used, *by.values())):
        return None
    return Usage(limit, used, by)


def _is_bytes(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**63


def move_least(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Choose the jobs whose output covers the overrun with the fewest bytes; tell each of them to move it, once."""
    usage = usage_of(record)
    if usage is None or not record.is_of_the_site:
        return hold_waiting(record, site, now)  # nobody knows who could move what: at least nothing is added
    if not usage.overrun:
        return handled("it is below its limit again")
    chosen = smallest_cover(usage.movable, usage.overrun)
    if chosen is None:
        return declined(f"all that could be moved does not cover {usage.overrun} bytes")
    hold_order = hold_waiting(record, site, now)
    moves = sum(usage.movable[job_id] for job_id in chosen)
    note = f"{len(chosen)} jobs move {moves} bytes to cover {usage.overrun}; {hold_order.note}"
    children = tuple(_move(record, site, job_id, usage.movable[job_id], note, now) for job_id in sorted(chosen))
    return replace(hold_order, note=note, forbids=(START, "move", "migrate"), children=children)


def _move(
    record: ExceptionRecord, site: SiteFacts, job_id: str, n_bytes: int, decision: str, now: float
) -> ExceptionRecord:
    attempt = AttemptId(record.subject.cluster, job_id, site.latest(job_id))
    return told(record, "job.move", attempt, decision, now, bytes=str(n_bytes), resource=record.subject.resource)
