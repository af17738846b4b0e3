"""Jobs: list, look into one, read its log, submit one to the embedded cluster."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Query
from fastapi.responses import Response
from pydantic import WithJsonSchema

from perdure.backends.local import JobSpec
from perdure.errors import NotFound, NotPermitted
from perdure.model.jobs import JobState
from perdure.service.access.auth import Identity
from perdure.service.store.queries import actions, jobs, learning, places
from perdure.service.store.queries.waits import waits_of
from perdure.service.web.api.models import JobFull, JobItem, Listing, Submitted
from perdure.service.web.api.params import Cursor, IdempotencyKey, JobId, Limit, Word
from perdure.service.web.state import Here, Operator, Owner, WebState

router = APIRouter(tags=["jobs"])

MAX_LOG_BYTES = 4 * 1024 * 1024


def _spec_schema() -> dict[str, Any]:
    """The fields of a job specification, in one piece: a part of a larger description cannot refer to its own root."""
    (schema,), parts = msgspec.json.schema_components([JobSpec])
    spec = parts[schema["$ref"].rpartition("/")[2]]
    fields = {}
    for name, field in spec["properties"].items():
        meant = parts[field["$ref"].rpartition("/")[2]] if "$ref" in field else {}
        fields[name] = {**meant, **{key: value for key, value in field.items() if key != "$ref"}}
    return {"type": "object", "properties": fields, "required": spec["required"], "additionalProperties": False}


Spec = Annotated[dict[str, Any], WithJsonSchema(_spec_schema())]


@router.get("/jobs")
def list_jobs(
    web: Here,
    identity: Owner,
    state: Annotated[list[JobState] | None, Query(description="Only jobs in this state; repeatable")] = None,
    user: Annotated[Word, Query(description="Only jobs of this user")] = "",
    q: Annotated[str, Query(description="Part of a name, or an id or user", max_length=200)] = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[JobItem]:
    """Jobs, the latest first."""
    if identity.own_only:
        _check_own(identity, user or identity.user, "jobs")
        user = identity.user
    page = jobs.find_jobs(web.reader, states=state or (), user=user, text=q, cursor=cursor, limit=limit)
    waits = waits_of(web.reader, [row.job for row in page.items])
    items = [JobItem.of(row, row.failure, waits.get(row.job.job_id, "")) for row in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.post("/jobs", status_code=201)
def submit(web: Here, identity: Operator, spec: Annotated[Spec, Body()], key: IdempotencyKey = None) -> Submitted:
    """Submit a job to the embedded cluster; the fields are those of its job specification."""
    job_id = web.replies.once(identity.user, key, spec, "submit", lambda: web.operations.submit(spec))
    return Submitted(job_id=job_id)


@router.get("/jobs/{job_id}")
def get_job(web: Here, identity: Owner, job_id: JobId) -> JobFull:
    """Everything about one job: attempts, verdicts, exceptions with decision, owner and reason, actions."""
    _check_own(identity, jobs.owner_of(web.reader, job_id), f"job {job_id}")
    found = jobs.job_detail(web.reader, job_id)
    failed = next((item.attempt for item in found.attempts if item.attempt.state.is_failure), None)
    there = places.places_of(web.reader, failed) if failed else ()
    acts = actions.actions_of(web.reader, job_id)
    waits = waits_of(web.reader, [found.job]).get(job_id, "")
    said = learning.corrections_of(web.reader, job_id)
    backend = web.operations.status().backend
    return JobFull.of(found, acts, there, identity, web.operations.kept_log, waits, backend, said)


@router.get("/jobs/{job_id}/log", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def get_log(
    web: Here,
    identity: Owner,
    job_id: JobId,
    incarnation: Annotated[int | None, Query(ge=0, le=2**62, description="Not given: the latest")] = None,
    max_bytes: Annotated[
        int, Query(ge=1, le=MAX_LOG_BYTES, description="Maximum number of bytes, from the end of the log")
    ] = 256 * 1024,
) -> Response:
    """The end of an attempt's log; of one that failed as it was then. Viewers get those of their own jobs."""
    text = read_log(web, identity, job_id, incarnation, max_bytes)
    return Response(text, media_type="text/plain; charset=utf-8")


def _check_own(identity: Identity, user: str, where: str) -> None:
    if not identity.may_see(user):
        raise NotPermitted(where, "without a token only your own jobs are shown", "Ask the operator for one")


def read_log(web: WebState, identity: Identity, job_id: str, incarnation: int | None, max_bytes: int) -> bytes:
    """The end of a log, for those who may read it. Raises `NotPermitted`, `NotFound`, `LogRefused`."""
    if not all(map(identity.may_read_logs_of, jobs.owners_of_log(web.reader, job_id, incarnation))):
        raise NotPermitted(f"job {job_id}", "its log belongs to another user", "Ask its owner or an operator")
    if incarnation is None:
        latest = jobs.latest_attempt(web.reader, job_id)
        if latest is None:
            raise NotFound(f"job {job_id}", "it has never run, so there is no log", "Wait until it starts")
        incarnation = latest.id.incarnation
    return web.operations.log_text(job_id, incarnation, max_bytes)[-max_bytes:]
