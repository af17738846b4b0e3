"""Who may say what to the chain of exceptions: what programs send, as inputs of the chain. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.coordination.chain import Annotated, Answered, Enlisted, Raised
from perdure.coordination.record import Annotation, AnswerKind, Component, ExceptionRecord, Scope
from perdure.coordination.ruling import Registration, Ruling, is_kind_of
from perdure.coordination.wire import MAX_NOTE, decode, type_of
from perdure.errors import Fenced, InputError, NotFound, NotPermitted
from perdure.service.auth import Identity, Role
from perdure.service.view import SiteView

AHEAD_S, BEHIND_S = 60.0, 7 * 86400.0  # how far the clock of who raises may be off
MAX_LEASE_S = 3600.0
NOT_YOURS = ("verdicts", "state", "outcome", "budget", "repeats")
OF_PERDURE = ("job", "node.failure")  # told by the service itself of what it sees


def raised(value: Any, identity: Identity, view: SiteView) -> Raised:
    """Read an exception that `identity` raises; one without an id gets one.

    Raises `InputError`, `NotFound`, `NotPermitted`, `Fenced`.
    """
    if not isinstance(value, Mapping):
        raise InputError("exception", "is no object", 'Write it like {"type": "gpu.xid79", ...}')
    for name in NOT_YOURS:
        if value.get(name):
            raise InputError(name, "is the service's to say", "Leave it out")
    subject = value.get("subject", {})
    if isinstance(subject, Mapping):
        subject = {"cluster": view.state.cluster, **subject}
    if "id" not in value:
        value = {**value, "id": str(uuid.uuid4())}
    source = f"{identity.role}:{identity.user}"
    record = decode({"time": view.now, **value, "subject": subject, "detected_by": source})
    _check_id(record.id)
    _check_time(record, view.now)
    scope, incarnation = _scope(record, view), _incarnation(record, identity, view)
    if (scope, incarnation) != (record.scope, record.incarnation):
        record = record.but(scope=scope, incarnation=incarnation)
    return Raised(record)


def _check_id(name: str) -> None:
    """It stands in addresses and in tables."""
    if not name.strip(".") or not name.isprintable():
        mend = "Use letters, digits, dots and dashes, or leave it out"
        raise InputError("id", f"{name[:80]!r} cannot be shown", mend)


def _scope(record: ExceptionRecord, view: SiteView) -> Scope:
    """How far it reaches, by its type alone: who raises it cannot say."""
    if any(is_kind_of(record.type, kind) for kind in OF_PERDURE):
        raise InputError(
            "type", f"{record.type} is told by the service itself", "Use one below app, process or launcher"
        )
    return view.playbook.known(record.type).scope


def _check_time(record: ExceptionRecord, now: float) -> None:
    if record.time_s > now + AHEAD_S:
        raise InputError("time", f"lies {record.time_s - now:.0f} s in the future", "Set that machine's clock (NTP)")
    if record.time_s < now - BEHIND_S:
        raise InputError("time", f"lies {(now - record.time_s) / 86400:.0f} days back", "Raise what is of this week")


def _incarnation(record: ExceptionRecord, identity: Identity, view: SiteView) -> int:
    """The start of the job that is meant; users speak of their own jobs, and of nodes that those run on."""
    subject = record.subject
    if subject.cluster != view.state.cluster:
        what = f"{subject.cluster} is not watched here"
        raise InputError("subject.cluster", what, f"This service watches {view.state.cluster}")
    if not subject.job_id:
        if identity.role is not Role.OPERATOR:
            raise NotPermitted("subject.job", "is missing", "Name a job of yours, or use an operator's token")
        return record.incarnation
    job = view.job(subject.job_id)
    if job is None:
        raise NotFound(f"job {subject.job_id}", "no such job is known", "See `perdure jobs`")
    if not identity.may_read_logs_of(job.user):
        raise NotPermitted(f"job {subject.job_id}", "it belongs to another user", "Raise for your own jobs")
    latest = view.latest(subject.job_id)
    if record.incarnation > latest:
        what = f"{record.incarnation} has never started; the latest is {latest}"
        raise InputError("incarnation", what, "Leave it out, or read it from PERDURE_INCARNATION")
    if record.incarnation and record.incarnation < latest:
        what = f"incarnation {record.incarnation} has been replaced by {latest}"
        raise Fenced(f"job {subject.job_id}", what, "End this process; a newer one runs")
    if identity.role is not Role.OPERATOR:
        _check_nodes(record, view)
    return latest


def _check_nodes(record: ExceptionRecord, view: SiteView) -> None:
    mine = {node for attempt in view.running() if attempt.id.job_id == record.subject.job_id for node in attempt.nodes}
    for node in record.subject.nodes:
        if node not in mine:
            raise NotPermitted("subject.node", f"the job does not run on {node[:80]}", "Name a node that it runs on")


def enlisted(
    handler: str, component: str, types: Sequence[str], lease_s: float, answer_s: float, identity: Identity, now: float
) -> Enlisted:
    """Read a registration; users are asked about their own jobs alone. Raises `InputError`, `NotPermitted`."""
    seat = Component(component)
    if identity.role is not Role.OPERATOR and seat not in (Component.JOB, Component.WORKFLOW):
        raise NotPermitted("component", f"{seat} is the site's", "Take the seat of job or workflow")
    for kind in types:
        if kind:
            type_of(kind)
    owner = "" if identity.role is Role.OPERATOR else identity.user
    until_s = now + min(lease_s, MAX_LEASE_S)
    return Enlisted(Registration(handler, seat, tuple(types), identity.user, until_s, owner, answer_s))


def may_see(record: ExceptionRecord, identity: Identity, view: SiteView) -> bool:
    """Operators see all; users what is about their own jobs, and about no job at all."""
    if identity.role is Role.OPERATOR or not record.subject.job_id:
        return True
    job = view.job(record.subject.job_id)
    return job is not None and identity.may_read_logs_of(job.user)


def may_speak_for(registration: Registration | None, handler: str, identity: Identity) -> Registration:
    """The registration, for who made it. Raises `NotFound`, `NotPermitted`."""
    if registration is None:
        raise NotFound(f"handler {handler}", "is not registered", "Register it: its lease may have run out")
    if registration.by != identity.user:
        raise NotPermitted(f"handler {handler}", "was registered by another user", "Register one of your own")
    return registration


def answered(
    exception_id: str,
    registration: Registration,
    verdict: str,
    note: str,
    annotations: Mapping[str, str],
    forbids: Sequence[str],
    until_s: float | None,
    now: float,
) -> Answered:
    """Read a handler's verdict. Raises `InputError`."""
    kind = AnswerKind(verdict)
    if kind is AnswerKind.DEFERRED and until_s is None:
        raise InputError("until", "is missing", "Say until when it is put off, in seconds since 1970")
    notes = tuple(
        Annotation(registration.component.value, now, key[:256], value[:MAX_NOTE]) for key, value in annotations.items()
    )
    ruling = Ruling(kind, note, annotations=notes, forbids=tuple(forbids), until_s=until_s)
    return Answered(exception_id, registration.id, ruling)


def annotated(exception_id: str, key: str, value: Any, identity: Identity, now: float) -> Annotated:
    """Read an annotation; what is no text is kept as JSON. Raises `InputError`."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > MAX_NOTE:
        raise InputError("value", f"has {len(text)} characters", f"Keep it to {MAX_NOTE}; put the rest into a file")
    return Annotated(exception_id, Annotation(f"{identity.role}:{identity.user}", now, key, text))
