"""Who may say what to the chain of exceptions: what programs send, as inputs of the chain. Pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from string import ascii_letters, digits
from typing import Any

from msgspec.structs import replace

from perdure.coordination.messages import Annotated, Answered, Closed, ExceptionRaised, HandlerEnlisted
from perdure.coordination.playbook import Plan
from perdure.coordination.record import (
    CLOSED,
    OF_THE_CHAIN,
    SEEN_BY,
    Annotation,
    AnswerKind,
    Component,
    ExceptionRecord,
    Scope,
)
from perdure.coordination.ruling import OWNED, Registration, Ruling
from perdure.coordination.wire import MAX_NOTE, MAX_WORD, decode, type_of
from perdure.errors import Fenced, InputError, NotFound, NotPermitted
from perdure.model.identity import AttemptId
from perdure.service.access.auth import Identity, Role
from perdure.service.core.view import SiteView

AHEAD_S, BEHIND_S = 60.0, 7 * 86400.0  # how far the clock of who raises may be off
MAX_LEASE_S = 3600.0
NOT_YOURS = ("verdicts", "state", "outcome", "budget", "repeats", "seen_by")
OF_PERDURE = ("job", "node.failure", "resource.needed")  # told by the service itself of what it sees
NOT_OF_GUESTS = (*OF_PERDURE, "suspect")
_BELOW_OF_PERDURE = tuple([f"{kind}." for kind in OF_PERDURE])
_NOT_BELOW_OF_GUESTS = tuple([f"{kind}." for kind in NOT_OF_GUESTS])
_IN_IDS = frozenset(ascii_letters + digits + "._-")


def raised(value: Any, identity: Identity, view: SiteView) -> ExceptionRaised:
    """Read an exception that `identity` raises; one without an id gets one.

    Raises `InputError`, `NotFound`, `NotPermitted`, `Fenced`.
    """
    if not isinstance(value, dict):
        raise InputError("exception", "is not an object", 'Write it like {"type": "gpu.xid79", ...}')
    for name in NOT_YOURS:
        if value.get(name):
            raise InputError(name, "is set by the service and cannot be sent", "Remove it")
    subject = value.get("subject", {})
    if isinstance(subject, dict):
        subject = {"cluster": view.state.cluster, **subject}
    source, is_guest = f"{identity.role}:{identity.user}", identity.role is not Role.OPERATOR
    is_named = "id" in value
    name = _id(value["id"], f"{identity.user}{OWNED}" if is_guest else "") if is_named else str(uuid.uuid4())
    given = dict(value, id=name, subject=subject, detected_by=source)
    given.setdefault("time", view.now)
    record = decode(given)
    _check_time(record, view.now)
    plan, incarnation = _plan(record, view, is_guest=is_guest), _incarnation(record, identity, view)
    if plan.outlives_job and plan.scope is Scope.LOCAL:
        _check_nodes_exist(record, view)
    if is_guest and plan.scope is Scope.GLOBAL:
        _check_is_used(record, incarnation, view)
    notes = tuple([_signed(note, source, is_guest) for note in record.annotations]) if record.annotations else ()
    if (plan.scope, incarnation, notes) != (record.scope, record.incarnation, record.annotations):
        record = replace(record, scope=plan.scope, incarnation=incarnation, annotations=notes)
    return ExceptionRaised(record, guest=is_guest, is_named=is_named)


def _id(given: Any, prefix: str) -> Any:
    """The id that it gets: a user's names get a prefix, so that they take none that another user, or Perdure, needs."""
    if not isinstance(given, str):
        return given  # refused in a moment, with the reason
    name = given.removeprefix(prefix)
    if not name.strip(".") or not _IN_IDS.issuperset(name):
        what = f"{given[:80]!r} is not a name for an exception"
        raise InputError("id", what, "Use letters, digits, dots, dashes and underscores, or leave it out")
    return prefix + name


def _signed(note: Annotation, source: str, is_guest: bool) -> Annotation:
    """Who says it is never left to whoever says it; what the site's programs call themselves comes after."""
    if note.key == SEEN_BY:
        raise InputError(f"annotations.{SEEN_BY}", "is set by the service and cannot be sent", "Remove it")
    return replace(
        note, component=source if is_guest or not note.component else f"{source}/{note.component}"[:MAX_WORD]
    )


def _plan(record: ExceptionRecord, view: SiteView, *, is_guest: bool) -> Plan:
    """What is done about it, and how far it reaches, by its type alone: who raises it cannot say."""
    if f"{record.type}.".startswith(_NOT_BELOW_OF_GUESTS if is_guest else _BELOW_OF_PERDURE):
        raise InputError(
            "type", f"{record.type} is told by the service itself", "Use one below app, process or launcher"
        )
    plan = view.playbook.plan_for(record.type)
    if plan is None:
        families = [name for name in view.playbook.families() if name not in NOT_OF_GUESTS]
        fix = f"Use one below: {', '.join(families)}; or plan for it in the site's playbook"
        raise InputError("type", f"{record.type} is not known", fix)
    return plan


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
        _check_nodes(record, AttemptId(subject.cluster, subject.job_id, latest), view)
    return latest


def _check_nodes(record: ExceptionRecord, attempt: AttemptId, view: SiteView) -> None:
    running = view.state.known.running.get(attempt)
    for node in record.subject.nodes:
        if running is None or node not in running.nodes:
            raise NotPermitted("subject.node", f"the job does not run on {node[:80]}", "Name a node that it runs on")


def _check_is_used(record: ExceptionRecord, incarnation: int, view: SiteView) -> None:
    """Users speak of what their jobs use while they run; what is named nowhere, nobody is known to use."""
    subject = record.subject
    job, resource = view.job(subject.job_id), view.playbook.resources.get(subject.resource)
    if AttemptId(subject.cluster, subject.job_id, incarnation) not in view.state.known.running:
        fix = "Raise what others share while a job of yours runs"
        raise NotPermitted(f"job {subject.job_id}", "it does not run", fix)
    if subject.resource and (resource is None or job is None or not resource.is_needed_by(job)):
        what = f"the job is not known to use {subject.resource[:80]}"
        raise NotPermitted("subject.resource", what, "Ask the operator to name it in the playbook, below resources")


def _check_nodes_exist(record: ExceptionRecord, view: SiteView) -> None:
    """A fault of a node outside the cluster would be nobody's to fix."""
    known = view.state.known.nodes
    for node in record.subject.nodes if known else ():
        if node not in known:
            raise NotFound(f"node {node[:80]}", "no such node is known", "See `perdure nodes` for their names")


def enlisted(
    handler: str, component: str, types: Sequence[str], lease_s: float, answer_s: float, identity: Identity, now: float
) -> HandlerEnlisted:
    """Read a registration; users are asked about their own jobs alone. Raises `InputError`, `NotPermitted`."""
    level = Component(component)
    if identity.role is not Role.OPERATOR and level not in (Component.JOB, Component.WORKFLOW):
        raise NotPermitted("component", f"{level} is the site's", "Register at the level job or workflow")
    for kind in types:
        if kind:
            type_of(kind)
    until_s = now + min(lease_s, MAX_LEASE_S)
    owner = _owner(identity)
    return HandlerEnlisted(Registration(handler, level, tuple(types), identity.user, until_s, owner, answer_s))


def handler_id(name: str, identity: Identity) -> str:
    """The id of a handler of that name: users have names of their own, so that nobody takes another's."""
    prefix = f"{identity.user}{OWNED}" if _owner(identity) else ""
    return prefix + name.removeprefix(prefix)


def _owner(identity: Identity) -> str:
    """The user whose jobs a handler registered by `identity` is asked about; "" is everybody's."""
    return "" if identity.role is Role.OPERATOR else identity.user


def may_see(record: ExceptionRecord, identity: Identity, view: SiteView) -> bool:
    """Operators see all; users what is about their own jobs, and about no job at all.

    What was said before a job was submitted that was never put back is about another, which had its id.
    """
    if identity.role is Role.OPERATOR or not record.subject.job_id:
        return True
    owner = view.owner_of(record)
    return bool(owner) and identity.may_read_logs_of(owner)


def may_speak_for(registration: Registration | None, handler: str, identity: Identity) -> Registration:
    """The registration, for who made it in the same role, and a user's for operators, too.

    Raises `NotFound`, `NotPermitted`.
    """
    if registration is None:
        raise NotFound(f"handler {handler}", "is not registered", "Register it: its lease may have run out")
    is_the_site_s = not registration.owner
    is_own = registration.by == identity.user and is_the_site_s == (identity.role is Role.OPERATOR)
    if not is_own and (is_the_site_s or identity.role is not Role.OPERATOR):
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
    for key in annotations:
        _check_key(key)
    if kind is AnswerKind.DEFERRED and until_s is None:
        raise InputError("until", "is missing", "Say until when it is put off, in seconds since 1970")
    notes = tuple(
        Annotation(registration.component.value, now, key[:256], value[:MAX_NOTE]) for key, value in annotations.items()
    )
    ruling = Ruling(kind, note, annotations=notes, forbids=tuple(forbids), until_s=until_s)
    return Answered(exception_id, registration.id, ruling)


def annotated(exception_id: str, key: str, value: Any, identity: Identity, now: float) -> Annotated:
    """Read an annotation; what is not text is kept as JSON. Raises `InputError`."""
    _check_key(key)
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > MAX_NOTE:
        raise InputError("value", f"has {len(text)} characters", f"Keep it to {MAX_NOTE}; put the rest into a file")
    return Annotated(exception_id, Annotation(f"{identity.role}:{identity.user}", now, key, text))


def closed(exception_id: str, note: str, identity: Identity, now: float) -> Closed:
    """An operator's word that an exception is dealt with."""
    return Closed(exception_id, Annotation(f"{identity.role}:{identity.user}", now, CLOSED, note or "seen to"))


def _check_key(key: str) -> None:
    """What decides, is said when an exception is raised or by the service, and not afterwards by anybody."""
    if key in OF_THE_CHAIN:
        raise InputError("key", f"{key} is kept for the service", "Use a key of your own, such as checkpoint")
