"""Faults of what jobs share: one decision for all of them, and each job is told what it means for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.coordination.handlers.node import SECOND_LOOK_S
from perdure.coordination.record import (
    START,
    Annotation,
    AnswerKind,
    ExceptionOutcome,
    ExceptionRecord,
    Origin,
    Scope,
    Subject,
    about,
)
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import Resource, SiteFacts
from perdure.model.actions import Hold, Release
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt

NEEDED = "resource.needed"  # the type of what says: jobs came that need what is down
MAX_HELD = 500  # by one exception: the rest is held as newcomers are
MAX_TOLD = 500
TOLD_SEVERITY = 4
_FULL = "storage.full"
_THE_SERVICE = "perdure"


def hold_waiting(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Hold the waiting jobs that need it, and those that come; the running ones are asked to pause. Nobody moves."""
    if not record.subject.resource:
        return declined("it names no shared resource")
    if not record.is_of_the_site:
        return _the_site_s_word(now)
    users, needy = _users(record, site), _needy(record, site)
    holds = [Hold(attempt, record.id) for attempt in _late(needy, record, site)]
    held = f"{len(holds)} of {len(needy)} waiting jobs are held{_until([record])}"
    note = f"{_cause(record)}: {held}; {len(users)} running ones are notified"
    return _telling(handled(note, *holds, forbids=(START, "move", "migrate")), record, "job.pause", users, now)


def hold_newcomers(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:  # noqa: ARG001
    """Hold the jobs that came since it went down. The running ones have been told."""
    resource = record.subject.resource
    orders = _hold_orders_on(resource, site)
    if not orders:
        return handled("nothing is held because of it")
    down = [order for order in orders if order.type != NEEDED]  # not what held those that came before
    holds = [Hold(attempt, record.id) for attempt in _late(_needy(record, site), record, site)]
    causes = ", ".join(dict.fromkeys(_cause(order) for order in down)) or _cause(record)
    note = f"{causes}: {len(holds)} jobs that need it and came since are held{_until(down)}"
    return handled(note, *holds, forbids=(START,))


def newly_needed(site: SiteFacts, now: float) -> list[ExceptionRecord]:
    """What is to be raised because jobs came that need what is down: one exception a resource."""
    first = {order.subject.resource: order for order in reversed(site.in_force()) if order.is_hold_order}
    late = [(order, _late(_needy(order, site), order, site)) for order in first.values()]
    return [_needed(order, attempts[0], now) for order, attempts in late if attempts]


def throttle(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Tell the running jobs that use it to slow down. Nothing is held yet."""
    if not record.is_of_the_site:
        return _the_site_s_word(now)
    users = _users(record, site)
    ruling = handled(f"{len(users)} running jobs are asked to slow down", forbids=("move", "migrate"))
    return _telling(ruling, record, "job.throttle", users, now)


def release_held(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """It works again: release what was held because of it, all but the jobs that need what is down still.

    Those are released with the last that they need; so is what an earlier all-clear could not release.
    """
    if not record.subject.resource:
        return declined("it names no shared resource")
    if not record.is_of_the_site:
        return _the_site_s_word(now)
    over = [r for r in site.in_force() if r.subject.resource == record.subject.resource or _is_clearing(r)]
    down = [site.resource(r.subject.resource) for r in site.in_force() if r.is_hold_order and r not in over]
    held = list(dict.fromkeys(attempt for r in over for attempt in r.holds))
    free = [attempt for attempt in held if not _needs_any(attempt, down, site)]
    note = f"{_cause(record)}: {len(free)} jobs are released" if held else "nothing is held because of it"
    if kept := len(held) - len(free):
        note += f"; {kept} need what is down still"
    ruling = handled(note, *[Release(attempt, record.id) for attempt in free])
    passed = [exception_id for exception_id in site.open_about(record.subject.resource) if exception_id != record.id]
    return replace(ruling, clears=(*[r.id for r in over], *passed))


def _cause(record: ExceptionRecord) -> str:
    """The reason that is shown with each job that is held or released."""
    return f"{record.type} of {record.subject.resource}"


def _until(orders: Sequence[ExceptionRecord]) -> str:
    """What ends them all. The service looks by itself whether a file system that it found full has room again."""
    if not orders:
        return ""
    if all(order.type == _FULL and order.detected_by == _THE_SERVICE for order in orders):
        return ", until there is room again, which Perdure sees by itself"
    kinds = dict.fromkeys(f"{order.type.partition('.')[0]}.restored" for order in orders)
    return f", until {', '.join(kinds)} of it is raised"


def _the_site_s_word(now: float) -> Ruling:
    """All who need the resource would be held, or released: users can ask for that, and not bring it about."""
    return Ruling(AnswerKind.DEFERRED, "only users say so", until_s=now + SECOND_LOOK_S)


def _is_clearing(record: ExceptionRecord) -> bool:
    return record.outcome is ExceptionOutcome.CLEARING


def _needs_any(attempt: AttemptId, resources: Sequence[Resource], site: SiteFacts) -> bool:
    job = site.job(attempt.job_id)
    return job is not None and any(resource.is_needed_by(job) for resource in resources)


def _hold_orders_on(resource: str, site: SiteFacts) -> list[ExceptionRecord]:
    return [record for record in site.in_force() if record.is_hold_order and record.subject.resource == resource]


def _needy(record: ExceptionRecord, site: SiteFacts) -> list[AttemptId]:
    """The jobs that wait and need what a record is about."""
    resource = site.resource(record.subject.resource)
    needy = [job for job in site.waiting() if resource.is_needed_by(job)]
    return [AttemptId(job.cluster, job.job_id, site.latest(job.job_id)) for job in needy]


def _late(needy: Sequence[AttemptId], record: ExceptionRecord, site: SiteFacts) -> list[AttemptId]:
    """Those of them that nobody has held since it went down. One that a person released since is not held again."""
    held = {attempt for order in _hold_orders_on(record.subject.resource, site) for attempt in order.held}
    return [attempt for attempt in needy if attempt not in held][:MAX_HELD]


def _needed(order: ExceptionRecord, first: AttemptId, now: float) -> ExceptionRecord:
    """Its id is made from the first of the jobs that came: that one is named by no other."""
    return ExceptionRecord(
        id=f"{order.id}/{NEEDED}/{first.job_id}.{first.incarnation}",
        type=NEEDED,
        severity=TOLD_SEVERITY,
        scope=Scope.GLOBAL,
        subject=Subject(order.subject.cluster, resource=order.subject.resource),
        time_s=now,
        note=f"because of {order.type} of {order.subject.resource}",
        origin=Origin("scheduler"),
        detected_by=_THE_SERVICE,
        cause=order.id,
    )


def _users(record: ExceptionRecord, site: SiteFacts) -> list[Attempt]:
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
        detected_by=_THE_SERVICE,
        annotations=notes,
    )
