"""Exceptions: those on their way, storms, who is asked, and the journey of each through the chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response

from perdure.coordination.chain_state import Chain
from perdure.coordination.record import AnswerKind, ExceptionRecord
from perdure.errors import NotFound
from perdure.service.access.auth import Identity, Role
from perdure.service.store.queries import actions, exceptions, jobs
from perdure.service.store.queries.jobs import JobName, JudgedLine
from perdure.service.store.queries.reader import MAX_LIMIT, Page
from perdure.service.web.api.exceptions import ExceptionId, visible
from perdure.service.web.pages.decision_timeline import decided_after_s, decided_s, stages, stretches
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, Word, at, csv_file, every, known_value
from perdure.service.web.pages.render import done, page
from perdure.service.web.state import Here, Operator, Viewer, WebState

router = APIRouter()

ROWS = 50
CHILDREN = 50
ACTIONS = 100
STORM = 10
"""Equal faults in one exception from which on it is called a storm."""
STORMS = 10
CHILDREN_COME_WITHIN_S = 3600.0
OPEN = "in_chain"
UNANSWERED = (OPEN, "escalated")
"""Whoever looks at the open ones sees what nobody could see to besides what is still being asked about."""
ENDED = ("handled", "escalated", "expired", "clearing", "recovered", "failed_again", "stopped", "withdrawn", "closed")


@dataclass(frozen=True, slots=True)
class Outage:
    """A shared resource that keeps jobs from starting: what was reported of it first, and how many are held for it."""

    record: ExceptionRecord
    held: int


@dataclass(frozen=True, slots=True)
class Row:
    """An exception in the list, with what tells it from others of its type."""

    record: ExceptionRecord
    job: JobName | None
    nodes: tuple[str, ...]  # that it is about, or that the attempt ran on
    says: str  # the line that names the root cause, or what was said when it was raised


COLUMNS: Columns[Row] = (
    ("id", lambda row: row.record.id),
    ("type", lambda row: row.record.type),
    ("severity", lambda row: row.record.severity),
    ("job_id", lambda row: row.record.subject.job_id),
    ("name", lambda row: row.job.name if row.job else ""),
    ("user", lambda row: row.job.user if row.job else ""),
    ("partition", lambda row: row.job.partition if row.job else ""),
    ("nodes", lambda row: row.nodes),
    ("resource", lambda row: row.record.subject.resource),
    ("says", lambda row: row.says),
    ("outcome", lambda row: row.record.standing),
    ("owner", lambda row: row.record.owner.value if row.record.owner else ""),
    ("raised", lambda row: at(row.record.time_s)),
    ("decided_after_s", lambda row: decided_after_s(row.record)),
    ("times", lambda row: row.record.repeats + 1),
)


@router.get("/exceptions")
def exceptions_page(
    request: Request,
    web: Here,
    identity: Viewer,
    asked: Wanted,
    state: Annotated[str, Query(max_length=20)] = "",
    type: Word = "",
    job: Word = "",
) -> Response:
    """Exceptions, open ones first, then those that were decided recently, over or not; all of them as CSV."""
    own = {"state": known_value("state", state, (OPEN, *ENDED)), "type": type.strip(), "job": job.strip()}
    within, order = asked.within(web.now()), asked.order(exceptions.SORTED_BY)
    chain = web.operations.coordinator.chain()

    def read(states: Sequence[str], cursor: str | None, limit: int = MAX_LIMIT) -> Page[ExceptionRecord]:
        only_open = states == (OPEN,)
        return exceptions.find_exceptions(
            web.reader, job_id=own["job"], types=[own["type"]] if own["type"] else (), only_open=only_open,
            states=UNANSWERED if only_open else states, user=_user(identity), of_user=asked.user,
            partition=asked.partition, raised=within, order=order, cursor=cursor, limit=limit,
        )  # fmt: skip

    if asked.is_csv:
        found = list(every(lambda cursor: read((own["state"],) if own["state"] else (), cursor)))
        return csv_file("exceptions", COLUMNS, rows_of(web, identity, found))
    narrow, decided = own["state"] or asked.cursor, [name for name in ENDED if name not in UNANSWERED]
    is_of_open = own["state"] in UNANSWERED
    opened = read((own["state"] or OPEN,), asked.cursor, ROWS) if is_of_open or not narrow else None
    ended = read((own["state"],) if own["state"] else decided, asked.cursor, ROWS) if not is_of_open else None
    listing = ListingAddress("/exceptions", asked, own, tuple(exceptions.SORTED_BY))
    shows_all = not (listing.is_narrowed or asked.cursor)
    return page(
        request,
        web,
        "exceptions",
        "Exceptions",
        opened=rows_of(web, identity, opened.items) if opened else None,
        ended=rows_of(web, identity, ended.items) if ended else None,
        older_open=listing.link(state=own["state"] or OPEN, cursor=opened.next_cursor)
        if opened and opened.next_cursor
        else "",
        older_ended=listing.onward(ended),
        turns=chain.turns,
        outages=_outages(chain) if shows_all else (),
        storms=_storms(web, identity, chain) if shows_all else (),
        handlers=[h for h in chain.handlers.values() if identity.role is Role.OPERATOR or h.owner == identity.user],
        tabs=[(name, listing.link(state=name)) for name in ("", OPEN, *ENDED)],
        listing=listing,
        state=own["state"],
        type=own["type"],
        job=own["job"],
    )


def rows_of(web: WebState, identity: Identity, records: Sequence[ExceptionRecord]) -> list[Row]:
    """Each exception with its job, and with the line of the log that names its cause, for who may read that."""
    named = jobs.names_of(web.reader, {record.subject.job_id for record in records})
    roots = jobs.root_lines(web.reader, {record.subject.job_id for record in records})
    found = []
    for record in records:
        about = named.get(record.subject.job_id)
        judged = roots.get((record.subject.job_id, record.incarnation), JudgedLine("", (), ""))
        may_read = about is None or (identity.may_read_logs_of(about.user) and judged.user in ("", about.user))
        said = judged.root or next(iter(record.evidence), "") or record.note
        found.append(Row(record, about, record.subject.nodes or judged.nodes, said if may_read else ""))
    return found


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


@router.post("/do/exceptions/closing")
def close(
    request: Request,
    web: Here,
    identity: Operator,
    exception_id: Annotated[str, Form(min_length=1, max_length=600)],
    note: Annotated[str, Form(max_length=4096)] = "",
) -> Response:
    """Say that an exception which waits for a person is seen to."""
    web.operations.coordinator.close(exception_id, note, identity)
    return done(request, "Closed")


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


def _storms(web: WebState, identity: Identity, chain: Chain) -> list[ExceptionRecord]:
    """What took in the most equal faults, of all that is open or ended recently."""
    found = [r for records in (chain.open, chain.ended) for r in records.values() if r.repeats + 1 >= STORM]
    shown = shown_to(web, identity, found)
    return sorted(shown, key=lambda record: (-record.repeats, record.id))[:STORMS]


def shown_to(web: WebState, identity: Identity, records: Sequence[ExceptionRecord]) -> Iterable[ExceptionRecord]:
    """Those about no job, and about jobs whose logs `identity` may read."""
    if identity.role is Role.OPERATOR:
        return records
    owners = jobs.owners_of(web.reader, {record.subject.job_id for record in records})
    return [r for r in records if not r.subject.job_id or identity.may_read_logs_of(_owner(owners, r))]


def _owner(owners: Mapping[str, jobs.Owner], record: ExceptionRecord) -> str:
    return owners.get(record.subject.job_id, jobs.NOBODY).at(record.time_s)


def _cause(web: WebState, identity: Identity, record: ExceptionRecord) -> ExceptionRecord | None:
    """What it follows from, for who may see that."""
    if not record.cause:
        return None
    try:
        return visible(web, identity, record.cause)
    except NotFound:
        return None
