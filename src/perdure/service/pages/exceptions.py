"""Exceptions: those on their way, storms, who is asked, and the journey of each through the chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response

from perdure.coordination.chain import Chain
from perdure.coordination.record import AnswerKind, ExceptionRecord
from perdure.errors import NotFound
from perdure.service.api.exceptions import ExceptionId, visible
from perdure.service.auth import Identity, Role
from perdure.service.context import Here, Operator, Viewer, Web
from perdure.service.pages.journey import decided_after_s, decided_s, stages, stretches
from perdure.service.pages.render import done, page
from perdure.service.queries import actions, exceptions, jobs
from perdure.service.queries.reader import Page

router = APIRouter()

ROWS = 50
CHILDREN = 50
ACTIONS = 100
STORM = 10
"""Equal faults in one exception from which on it is called a storm."""
STORMS = 10
CHILDREN_COME_WITHIN_S = 3600.0
OPEN = "in_chain"
ENDED = ("handled", "escalated", "expired", "clearing", "recovered", "stopped", "withdrawn")

Word = Annotated[str, Query(max_length=256)]


@dataclass(frozen=True, slots=True)
class Outage:
    """A shared resource that keeps jobs from starting: what was told of it first, and how many are held for it."""

    record: ExceptionRecord
    held: int


@router.get("/exceptions")
def exceptions_page(
    request: Request,
    web: Here,
    identity: Viewer,
    state: Annotated[str, Query(max_length=20)] = "",
    type: Word = "",
    job: Word = "",
    cursor: Annotated[str | None, Query(max_length=40)] = None,
) -> Response:
    """Exceptions: open ones first, then those that ended lately."""
    state = state if state in (OPEN, *ENDED) else ""
    chosen = {name: value for name, value in (("state", state), ("type", type.strip()), ("job", job.strip())) if value}
    chain = web.operations.coordinator.chain()

    def listed(*states: str) -> Page[ExceptionRecord]:
        return exceptions.find_exceptions(
            web.reader,
            job_id=chosen.get("job", ""),
            types=[chosen["type"]] if "type" in chosen else (),
            states=states,
            only_open=states == (OPEN,),
            user=_user(identity),
            cursor=cursor,
            limit=ROWS,
        )

    opened = listed(OPEN) if state == OPEN or not (state or cursor) else None
    ended = listed(*([state] if state else ENDED)) if state != OPEN else None
    return page(
        request,
        web,
        "exceptions",
        "Exceptions",
        opened=opened,
        ended=ended,
        older_open=_path(chosen | {"state": OPEN}, opened),
        older_ended=_path(chosen, ended),
        turns=chain.turns,
        outages=_outages(chain) if not (chosen or cursor) else (),
        storms=_storms(web, identity, chain) if not (chosen or cursor) else (),
        handlers=[h for h in chain.handlers.values() if identity.role is Role.OPERATOR or h.owner == identity.user],
        tabs=[(name, _path(chosen | {"state": name})) for name in ("", OPEN, *ENDED)],
        state=state,
        type=type.strip(),
        job=job.strip(),
        cursor=cursor,
        decided_after_s=decided_after_s,
    )


@router.get("/exceptions/{exception_id:path}")
def exception_page(request: Request, web: Here, identity: Viewer, exception_id: ExceptionId) -> Response:
    """One exception's journey through the chain."""
    record = visible(web, identity, exception_id)
    chain = web.operations.coordinator.chain()
    turn = chain.turns.get(record.id)
    keys = [key for answer in record.verdicts if answer.kind is AnswerKind.HANDLED for key in answer.action_keys]
    end_s = decided_s(record)
    within = (record.time_s - 60.0, (end_s or web.now()) + CHILDREN_COME_WITHIN_S)
    children = exceptions.children_of(web.reader, record.id, within, user=_user(identity), limit=CHILDREN + 1)
    return page(
        request,
        web,
        "exception",
        "Exception",
        record=record,
        stages=stages(record, turn),
        stretches=stretches(record, web.now()),
        decided_after_s=decided_after_s(record),
        acts=actions.actions_by_key(web.reader, keys[:ACTIONS]),
        more_acts=len(keys[ACTIONS:]),
        cause=_cause(web, identity, record),
        children=children[:CHILDREN],
        more_children=len(children) > CHILDREN,
        may_annotate=identity.role is Role.OPERATOR and chain.find(record.id) is not None,
    )


@router.post("/do/exceptions/annotation")
def annotate(
    request: Request,
    web: Here,
    identity: Operator,
    exception_id: Annotated[str, Form(min_length=1, max_length=600)],
    value: Annotated[str, Form(min_length=1, max_length=4096)],
    key: Annotated[str, Form(min_length=1, max_length=128)] = "note",
) -> Response:
    """Say something about an exception: the next ones in the chain read it."""
    web.operations.coordinator.annotate(exception_id, key, value, identity)
    return done(request, f"Noted: {key}")


def _user(identity: Identity) -> str | None:
    """Whose exceptions are shown; None is everybody's."""
    return None if identity.role is Role.OPERATOR else identity.user


def _outages(chain: Chain) -> list[Outage]:
    """They are everybody's to see: all are about what is shared."""
    found: dict[str, Outage] = {}
    for record in chain.ended.values():
        resource = record.subject.resource
        if resource and record.is_in_force:
            before = found.get(resource, Outage(record, 0))
            found[resource] = Outage(before.record, before.held + len(record.holds))
    return list(found.values())


def _storms(web: Web, identity: Identity, chain: Chain) -> list[ExceptionRecord]:
    """What took in the most equal faults, of all that is open or ended lately."""
    found = [r for records in (chain.open, chain.ended) for r in records.values() if r.repeats + 1 >= STORM]
    shown = _shown_to(web, identity, found)
    return sorted(shown, key=lambda record: (-record.repeats, record.id))[:STORMS]


def _shown_to(web: Web, identity: Identity, records: Sequence[ExceptionRecord]) -> Iterable[ExceptionRecord]:
    if identity.role is Role.OPERATOR:
        return records
    owners = jobs.owners_of(web.reader, {record.subject.job_id for record in records})
    return [r for r in records if not r.subject.job_id or identity.may_read_logs_of(owners.get(r.subject.job_id, ""))]


def _cause(web: Web, identity: Identity, record: ExceptionRecord) -> ExceptionRecord | None:
    """What it follows from, for who may see that."""
    if not record.cause:
        return None
    try:
        return visible(web, identity, record.cause)
    except NotFound:
        return None


def _path(chosen: dict[str, str], found: Page[ExceptionRecord] | None = None) -> str:
    """The listing under these choices; of a listing that goes on, its next page, else ""."""
    given = {name: value for name, value in chosen.items() if value}
    if found is not None:
        if found.next_cursor is None:
            return ""
        given["cursor"] = found.next_cursor
    query = urlencode({name: value.encode("utf-8", "replace") for name, value in given.items()})
    return f"/exceptions?{query}" if query else "/exceptions"
