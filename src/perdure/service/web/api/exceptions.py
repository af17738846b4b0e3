"""Exceptions: raise them, see them, be asked about them, answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema

from perdure.coordination.chain_state import Turn
from perdure.coordination.record import ExceptionOutcome, ExceptionRecord, ExceptionState
from perdure.coordination.ruling import Registration
from perdure.coordination.wire import encode
from perdure.errors import NotFound, NotPermitted, PerdureError
from perdure.service.access.auth import Identity, Role
from perdure.service.exceptions.coordinator import Answering, Enlisting
from perdure.service.exceptions.permissions import NOT_YOURS
from perdure.service.store.queries import events, exceptions, jobs
from perdure.service.web.api.models import Item, Listing
from perdure.service.web.api.params import Cursor, Limit, OfJob, Word
from perdure.service.web.problems import Problem, problem_of
from perdure.service.web.state import Here, Operator, Owner, Viewer, WebState

router = APIRouter(tags=["exceptions"])

Standing = Literal[
    "raised", "in_chain", "handled", "clearing", "recovered", "failed_again", "stopped", "escalated", "expired",
    "withdrawn", "closed",
]  # fmt: skip
"""The state of an exception, in one word: `ExceptionRecord.standing`."""

MAX_BATCH = 1000
TYPE = r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*"
Name = Annotated[str, Field(min_length=1, max_length=128)]
Line = Annotated[str, Field(max_length=4096)]
Dotted = Annotated[str, Field(max_length=256, json_schema_extra={"pattern": rf"^({TYPE})?$"})]
HandlerName = Annotated[
    str, Path(min_length=1, max_length=128, pattern=r"^[ -~]+$", description="Name of the handler, of its own choice")
]
ExceptionId = Annotated[str, Path(min_length=1, max_length=600, description="Id of the exception")]


def _record_schema() -> dict[str, Any]:
    """What may be raised: a record without what is the service's to say. It gives one without them an id and a time."""
    text = files("perdure.coordination").joinpath("exception.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    del schema["$schema"]
    fields = {name: field for name, field in schema["properties"].items() if name not in NOT_YOURS}
    return {**schema, "properties": fields, "required": ["type"]}


Record = Annotated[dict[str, Any], WithJsonSchema(_record_schema())]


class _ExceptionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Raised(BaseModel):
    """What a raised exception became: itself, or the equal one that it was counted with; `reason` says why."""

    id: str
    state: str
    repeats: int
    reason: str

    @classmethod
    def of(cls, record: ExceptionRecord, turn: Turn | None) -> Raised:
        escalated = record.state is ExceptionState.ESCALATED  # then nobody's word is the last: all may matter
        notes = [answer.note for answer in record.verdicts if answer.note]
        said = list(dict.fromkeys(notes)) if escalated else notes[-1:]
        reason = "; ".join([*said, turn.note] if turn and turn.note else said)
        if record.outcome is ExceptionOutcome.WITHDRAWN and not reason:
            reason = "what it is about has ended"
        return cls(id=record.id, state=record.standing, repeats=record.repeats, reason=reason)


class AnswerBody(_ExceptionRequest):
    """The answer of a handler that was asked."""

    handler: Name
    verdict: Literal["handled", "annotated", "declined", "deferred", "rejected"]
    note: Line = ""
    annotations: Annotated[dict[Name, Line], Field(max_length=16)] = {}
    forbids: Annotated[list[Name], Field(max_length=16)] = []
    until: Annotated[float | None, Field(ge=0, le=1e12, allow_inf_nan=False)] = None


class AnnotationBody(_ExceptionRequest):
    """What the next handlers are to know."""

    key: Name
    value: Any


class ClosingBody(_ExceptionRequest):
    """What was done about it."""

    note: Line = ""


class HandlerBody(_ExceptionRequest):
    """How a handler wants to be asked: at which level, about what (a dotted type and all below it; "" is every one)."""

    component: Literal["resource_manager", "job", "workflow", "scheduler"]
    types: Annotated[list[Dotted], Field(min_length=1, max_length=64)]
    lease_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    answer_s: Annotated[float, Field(gt=0, le=600)] = 30.0


class HandlerItem(Item):
    """A registered handler, and until when its lease runs."""

    id: str
    component: str
    types: list[str]
    by: str
    until: float
    answer_s: float

    @classmethod
    def of(cls, found: Registration, **more: Any) -> Self:
        return cls.of_parts(found, until=found.until_s, **more)


class Waiting(BaseModel):
    """An exception that waits for a handler's verdict."""

    record: dict[str, Any]
    until: float


class Enlisted(HandlerItem):
    """A registration as it begins or goes on: what waits for it now, and the event after which to listen.

    `now` is the service's clock, which `until` goes by.
    """

    now: float
    after: int
    asked: list[Waiting]


_ANSWERS = TypeAdapter(list[Raised | Problem])


@router.get("/exceptions")
def list_exceptions(
    web: Here,
    identity: Owner,
    job_id: OfJob = "",
    type: Annotated[list[Word] | None, Query(description="Dotted, with all below it; repeatable")] = None,
    state: Annotated[list[Standing] | None, Query(description="Only those in this state; repeatable")] = None,
    only_open: Annotated[bool, Query(alias="open", description="Only those that need an answer, or a person")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[dict[str, Any]]:
    """Exceptions, the latest first; of users: of their own jobs, and of what is about no job.

    Without a token only those of one of the user's own jobs.
    """
    if identity.own_only and not job_id:
        raise NotPermitted("exceptions", "only those of your own jobs are shown without a token", "Name one: job_id")
    page = exceptions.find_exceptions(
        web.reader,
        job_id=job_id,
        types=type or (),
        states=state or (),
        only_open=only_open,
        user=None if identity.role is Role.OPERATOR else identity.user,
        cursor=cursor,
        limit=limit,
    )
    return Listing(items=[_shown(record) for record in page.items], next_cursor=page.next_cursor)


@router.post("/exceptions", status_code=201)
def raise_one(web: Here, identity: Owner, record: Annotated[Record, Body()]) -> Raised:
    """Raise an exception; durable once answered. Users raise for their own jobs."""
    (became,) = web.operations.coordinator.raise_exceptions([record], identity)
    if isinstance(became, PerdureError):
        raise _of_ended_job(web, identity, became)
    return Raised.of(became, web.operations.coordinator.chain().turns.get(became.id))


@router.post("/exceptions/batch", response_model=list[Raised | Problem])
def raise_many(
    web: Here, identity: Viewer, records: Annotated[list[dict[str, Any]], Body(max_length=MAX_BATCH)]
) -> Response:
    """Raise many at once; for each what it became, or why it was refused."""
    became = web.operations.coordinator.raise_exceptions(records, identity)
    turns = web.operations.coordinator.chain().turns
    answers = [
        problem_of(_of_ended_job(web, identity, a)) if isinstance(a, PerdureError) else Raised.of(a, turns.get(a.id))
        for a in became
    ]
    return Response(_ANSWERS.dump_json(answers), media_type="application/json")  # unchecked: a storm is many


def _of_ended_job(web: WebState, identity: Identity, refused: PerdureError) -> PerdureError:
    """The refusal; of a job that ended too long ago for the controller to remember, with when that was."""
    job_id = refused.where.removeprefix("job ")
    if not isinstance(refused, NotFound) or job_id == refused.where:
        return refused
    try:
        found = jobs.job_detail(web.reader, job_id)
    except NotFound:
        return refused
    if not identity.may_read_logs_of(found.job.user):
        return refused
    ends = [judged.attempt.end_s for judged in found.attempts if judged.attempt.end_s is not None]
    at = datetime.fromtimestamp(max(ends, default=found.changed_s), UTC).astimezone().isoformat(timespec="seconds")
    return NotFound(refused.where, f"it ended at {at} ({found.job.state})", "Raise for a job that runs or waits")


@router.get("/exceptions/{exception_id:path}")
def get_exception(web: Here, identity: Owner, exception_id: ExceptionId) -> dict[str, Any]:
    """One exception, with all that was said of it."""
    return _shown(visible(web, identity, exception_id))


def _shown(record: ExceptionRecord) -> dict[str, Any]:
    """A record whose `state` is the one word that filters, tables and pages have; `chain_state` tells no outcome."""
    return {**encode(record), "state": record.standing, "chain_state": record.state.value}


@router.post("/answers/{exception_id:path}", status_code=204)
def post_answer(web: Here, identity: Viewer, exception_id: ExceptionId, answer: AnswerBody) -> None:
    """Give the verdict of a handler whose turn it is."""
    said = Answering(answer.verdict, answer.note, answer.annotations, tuple(answer.forbids), answer.until)
    web.operations.coordinator.answer(exception_id, answer.handler, said, identity)


@router.post("/annotations/{exception_id:path}", status_code=204)
def post_annotation(web: Here, identity: Viewer, exception_id: ExceptionId, annotation: AnnotationBody) -> None:
    """Say something about an exception."""
    web.operations.coordinator.annotate(exception_id, annotation.key, annotation.value, identity)


@router.post("/closings/{exception_id:path}", status_code=204)
def post_closing(web: Here, identity: Operator, exception_id: ExceptionId, closing: ClosingBody) -> None:
    """Close an exception that waits for a person, who has dealt with it."""
    web.operations.coordinator.close(exception_id, closing.note, identity)


@router.get("/handlers")
def list_handlers(web: Here, identity: Viewer) -> list[HandlerItem]:
    """Who is registered; users see their own."""
    found = web.operations.coordinator.chain().handlers.values()
    return [HandlerItem.of(one) for one in found if identity.role is Role.OPERATOR or one.owner == identity.user]


@router.put("/handlers/{handler}")
def put_handler(web: Here, identity: Viewer, handler: HandlerName, wish: HandlerBody) -> Enlisted:
    """Register a handler, or renew its lease."""
    after = events.newest(web.reader)
    enlisting = Enlisting(wish.component, tuple(wish.types), wish.lease_s, wish.answer_s)
    found = web.operations.coordinator.enlist(handler, enlisting, identity)
    chain = web.operations.coordinator.chain()
    turns = [(chain.open[i], turn) for i, turn in chain.turns.items() if turn.handler == found.id]
    asked = [Waiting(record=encode(record), until=turn.until_s) for record, turn in turns]
    return Enlisted.of(found, now=web.now(), after=after, asked=asked)


@router.delete("/handlers/{handler}", status_code=204)
def delete_handler(web: Here, identity: Viewer, handler: HandlerName) -> None:
    """End a registration: what waits for it is passed on."""
    web.operations.coordinator.dismiss(handler, identity)


def visible(web: WebState, identity: Identity, exception_id: str) -> ExceptionRecord:
    """An exception, for who may see it. Raises `NotFound`."""
    record = exceptions.exception(web.reader, exception_id)
    if record.subject.job_id and identity.role is not Role.OPERATOR:
        owner = jobs.owners_of(web.reader, {record.subject.job_id}).get(record.subject.job_id, jobs.NOBODY)
        is_its = exceptions.is_of_this_job(web.reader, exception_id)
        if not (is_its and identity.may_read_logs_of(owner.user)):
            raise NotFound(f"exception {exception_id}", "no such exception is known", "See `perdure events`")
    return record
