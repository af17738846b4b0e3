"""Faults of what jobs share: one decision for all of them, and each job is told what it means for it."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.coordination.handlers.node import is_vouched_for, second_look
from perdure.coordination.record import Annotation, ExceptionRecord, Origin, Scope, about
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import Site
from perdure.model.actions import Hold, Release
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt

MAX_HELD = 500  # by one exception: the rest is held by the caps of the hour anyway
MAX_TOLD = 500
TOLD_SEVERITY = 4


def hold_waiting(record: ExceptionRecord, site: Site, now: float) -> Ruling:
    """Hold the waiting jobs that need it; the running ones are told to pause at a safe point. Nobody moves."""
    return _brake(record, site, now, tell="job.pause", forbids=("move", "migrate", "requeue"))


def throttle(record: ExceptionRecord, site: Site, now: float) -> Ruling:
    """Tell the running jobs that use it to slow down. Nothing is held yet."""
    if not is_vouched_for(record):
        return second_look(record, now)
    users = _users(record, site)
    ruling = handled(f"{len(users)} running jobs are told to slow down", forbids=("move", "migrate"))
    return _telling(ruling, record, "job.throttle", users, now)


def release_held(record: ExceptionRecord, site: Site, now: float) -> Ruling:
    """It works again: let go of what was held because of it."""
    if not is_vouched_for(record):
        return second_look(record, now)
    held = site.holding(record.subject.resource)
    actions = [Release(attempt, exception_id) for exception_id, attempts in held for attempt in attempts]
    if not actions:
        return handled("nothing is held because of it")
    return handled(f"{len(actions)} jobs are released", *actions)


def _brake(record: ExceptionRecord, site: Site, now: float, tell: str, forbids: tuple[str, ...]) -> Ruling:
    if not record.subject.resource:
        return declined("it names no shared resource")
    if not is_vouched_for(record):
        return second_look(record, now)
    resource, users = site.resource(record.subject.resource), _users(record, site)
    needy = [job for job in site.waiting() if resource.is_needed_by(job)]
    holds = [Hold(AttemptId(job.cluster, job.job_id, site.latest(job.job_id)), record.id) for job in needy[:MAX_HELD]]
    note = f"{len(holds)} of {len(needy)} waiting jobs are held, {len(users)} running ones told"
    ruling = handled(note, *holds, forbids=forbids)
    return _telling(ruling, record, tell, users, now)


def _users(record: ExceptionRecord, site: Site) -> list[Attempt]:
    """Running attempts of jobs that need the resource; the job of the one who raised it among them."""
    resource = site.resource(record.subject.resource)
    found = [(attempt, site.job(attempt.id.job_id)) for attempt in site.running()]
    return [attempt for attempt, job in found if job is not None and resource.is_needed_by(job)]


def _telling(ruling: Ruling, record: ExceptionRecord, kind: str, users: Iterable[Attempt], now: float) -> Ruling:
    children = tuple(told(record, kind, attempt.id, ruling.note, now) for attempt in list(users)[:MAX_TOLD])
    return Ruling(ruling.kind, ruling.note, ruling.actions, forbids=ruling.forbids, children=children)


def told(
    record: ExceptionRecord, kind: str, attempt: AttemptId, decision: str, now: float, **more: str
) -> ExceptionRecord:
    """The decision on a shared resource as one job hears of it."""
    notes = tuple(Annotation("scheduler", now, key, value) for key, value in {"decision": decision, **more}.items())
    return ExceptionRecord(
        id=f"{record.id}/{kind}/{attempt.job_id}",
        type=kind,
        severity=TOLD_SEVERITY,
        scope=Scope.LOCAL,
        subject=about(attempt),
        time_s=now,
        note=f"because of {record.type} of {record.subject.resource}",
        incarnation=attempt.incarnation,
        origin=Origin("scheduler"),
        detected_by="perdure",
        annotations=notes,
    )
