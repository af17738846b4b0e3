"""Jobs: the list with its search, and all about one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.errors import PerdureError
from perdure.model.jobs import Job, JobState
from perdure.service.core.messages import PERDURE
from perdure.service.store.queries import actions, jobs, learning, places
from perdure.service.store.queries.jobs import JobRow
from perdure.service.store.queries.reader import MAX_LIMIT, Page
from perdure.service.store.queries.waits import waits_of
from perdure.service.web.api.jobs import read_log
from perdure.service.web.api.params import JobId
from perdure.service.web.pages import labels
from perdure.service.web.pages.actions import undoable
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, at, csv_file, every, known_value, show
from perdure.service.web.pages.logview import log_lines
from perdure.service.web.pages.render import page
from perdure.service.web.pages.start_words import starts_in_words
from perdure.service.web.pages.timeline import Stripe, Timeline, timeline
from perdure.service.web.resubmit_command import command_elsewhere
from perdure.service.web.state import Here, Viewer, WebState

router = APIRouter()

ROWS = 50
LOGS = 6  # attempts whose log is one click away
WEEK_S = 7 * 86400.0
STATES = tuple(state.value for state in JobState)


COLUMNS: Columns[JobRow] = (
    ("job_id", lambda row: row.job.job_id),
    ("name", lambda row: row.job.name),
    ("state", lambda row: row.job.state.value),
    ("failed_last", lambda row: row.failure.category if row.failure else ""),
    ("decision", lambda row: row.failure.decision if row.failure else ""),
    ("user", lambda row: row.job.user),
    ("partition", lambda row: row.job.partition),
    ("gpus", lambda row: row.job.gpus),
    ("nodes", lambda row: row.job.node_count),
    ("submitted", lambda row: at(row.job.submit_s)),
    ("changed", lambda row: at(row.changed_s)),
)


@router.get("/jobs")
def jobs_page(
    request: Request,
    web: Here,
    identity: Viewer,  # noqa: ARG001
    asked: Wanted,
    state: Annotated[str, Query(max_length=20)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The list of jobs, as a page or as CSV."""
    state, within, order = known_value("state", state, STATES), asked.within(web.now()), asked.order(jobs.SORTED_BY)

    def read(cursor: str | None, limit: int = MAX_LIMIT) -> Page[JobRow]:
        return jobs.find_jobs(
            web.reader, states=[state] if state else [], user=asked.user, partition=asked.partition, text=q.strip(),
            submitted=within, order=order, cursor=cursor, limit=limit,
        )  # fmt: skip

    if asked.is_csv:
        return _csv(web, list(every(read)))
    found = read(asked.cursor, ROWS)
    listing = ListingAddress("/jobs", asked, {"state": state, "q": q}, tuple(jobs.SORTED_BY))
    waits = waits_of(web.reader, [row.job for row in found.items])
    return show(request, web, "jobs", "Jobs", listing, found, STATES, q=q, waits=waits)


def _csv(web: WebState, rows: list[JobRow]) -> Response:
    waits = waits_of(web.reader, [row.job for row in rows])

    def because(row: JobRow) -> str:
        return waits.get(row.job.job_id) or (row.job.reason if row.job.state.is_waiting else "")

    return csv_file("jobs", (*COLUMNS, ("waits_because", because)), rows)


@router.get("/jobs/{job_id}")
def job_page(
    request: Request,
    web: Here,
    identity: Viewer,
    job_id: JobId,
    incarnation: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """All about one job; of its failures the latest, or the one asked for."""
    found = jobs.job_detail(web.reader, job_id)
    ended = [row for row in found.exceptions if row.of_attempt]
    failures = [row for row in ended if incarnation in (None, row.record.incarnation)]
    verdicts = {item.attempt.id.incarnation: item.verdict for item in found.attempts}
    failure = failures[0] if failures else None
    acts = actions.actions_of(web.reader, job_id)
    shown = failure.record.incarnation if failure else None
    laid = timeline(found.job, [item.attempt for item in reversed(found.attempts)], web.now())
    failed = next((item.attempt for item in found.attempts if item.attempt.id.incarnation == shown), None)
    verdict = verdicts.get(shown) if shown is not None else None
    return page(
        request,
        web,
        "job",
        labels.job_name(found.job.name) or f"Job {job_id}",
        job=found.job,
        detail=found,
        failure=failure,
        verdict=verdict,
        similar=learning.similar(web.reader, verdict.fingerprint, web.now() - WEEK_S) if verdict else None,
        places=[places.in_words(place) for place in places.places_of(web.reader, failed)] if failed else [],
        correction=learning.correction_of(web.reader, job_id, shown) if shown is not None else None,
        verdicts=verdicts,
        reached={item.attempt.id.incarnation: item.reached for item in found.attempts},
        decisions={row.record.incarnation: row for row in reversed(ended)},
        raised=[row for row in found.exceptions if not row.of_attempt],
        timeline=laid,
        log_of=shown,
        log_choices=log_choices(laid, shown),
        acts=acts,
        elsewhere=command_elsewhere(found, acts, web.operations.status().backend),
        undoable=undoable(web.reader, acts),
        may_read=identity.may_read_logs_of(found.job.user),
        orders=orders(found.job, has_run=bool(found.attempts)),
        waits=waits_of(web.reader, [found.job]).get(job_id, ""),
        starts=starts_of(web, found.job),
        ordered=next((row for row in acts if row.by != PERDURE), None),
    )


def starts_of(web: WebState, job: Job) -> str:
    """When a waiting job starts, in words; "" where that is not known."""
    told = web.waits.latest if web.waits and job.state.is_waiting else None
    found = told.of(job.job_id) if told else None
    return starts_in_words(found.forecast, web.now()) if found is not None and found.forecast is not None else ""


@router.get("/jobs/{job_id}/log")
def log_part(
    request: Request,
    web: Here,
    identity: Viewer,
    job_id: JobId,
    incarnation: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """The end of an attempt's log, as a part of the job's page."""
    most = web.settings.log_bytes
    try:
        raw, refusal = read_log(web, identity, job_id, incarnation, most), None
    except PerdureError as err:
        raw, refusal = b"", err
    found = jobs.job_detail(web.reader, job_id)
    shown = [item for item in found.attempts if incarnation in (None, item.attempt.id.incarnation)][:1]
    evidence = shown[0].verdict.shown_evidence if shown and shown[0].verdict and refusal is None else ()
    lines = log_lines(raw, evidence, whole=len(raw) < most)
    kept = bool(shown) and bool(web.operations.kept_log(job_id, shown[0].attempt.id.incarnation))
    return page(
        request, web, "log", "Log", job=found.job, lines=lines, refusal=refusal, incarnation=incarnation, kept=kept
    )


def log_choices(laid: Timeline, shown: int | None) -> list[Stripe]:
    """The attempts whose log can be chosen: the latest few, and the one that is `shown` at first."""
    latest = laid.stripes[-LOGS:]
    return [s for s in laid.stripes if s in latest or s.attempt.id.incarnation == shown]


def orders(job: Job, *, has_run: bool) -> tuple[str, ...]:
    """What an operator may ask of a job that stands so."""
    if job.state is JobState.HELD:
        return ("release", "cancel")
    if job.state.is_waiting:
        return ("hold", "cancel")
    if job.state.is_over:
        return ("retry",) if has_run and job.state is not JobState.COMPLETED else ()
    return ("cancel",)
