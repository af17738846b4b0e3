"""Jobs, and all that is known of one: attempts, verdicts, exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

from sqlalchemy import and_, func, or_, select

from perdure.coordination.record import ExceptionRecord
from perdure.errors import NotFound
from perdure.model.clean_text import clean
from perdure.model.jobs import Attempt, Job, JobState
from perdure.retry.decide import Decision
from perdure.service.store import codec
from perdure.service.store.queries.order import ALWAYS, SortOrder, Within, in_order, in_partition
from perdure.service.store.queries.reader import Page, Reader, as_text, paged
from perdure.service.store.queries.story import of_this_job
from perdure.service.store.schema import attempts, exceptions, jobs
from perdure.triage.verdict import CauseRole, Verdict

MAX_ATTEMPTS = 100  # shown of one job, the latest
MAX_EXCEPTIONS = 100
SORTED_BY = {
    "job": jobs.c.name,
    "state": jobs.c.state,
    "user": jobs.c.user,
    "partition": jobs.c.partition,
    "gpus": jobs.c.gpus,
    "submitted": jobs.c.submit_s,
}
LIVE = tuple(state.value for state in JobState if not state.is_over)
WAITING = tuple(state.value for state in JobState if state.is_waiting)


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """An attempt, and why it failed where that is known."""

    attempt: Attempt
    verdict: Verdict | None

    @property
    def reached(self) -> str:
        """How far it came, what it saved last and what is lost, by its log alone; "" where that tells nothing."""
        told = self.verdict.reached if self.verdict is not None else None
        return told.words(self.attempt.gpu_hours) if told is not None else ""


@dataclass(frozen=True, slots=True)
class DecidedException:
    """A failure on its way: who owns it, what was decided and why."""

    record: ExceptionRecord
    state: str
    owner: str
    decision: str  # "" while open
    reason: str
    wasted_gpu_h: float
    saved_gpu_h: float
    decided: Decision | None  # the numbers
    of_attempt: bool = True  # False: somebody raised it


@dataclass(frozen=True, slots=True)
class LatestFailure:
    """The newest failure of a job, in a line."""

    category: str
    decision: str
    state: str


@dataclass(frozen=True, slots=True)
class JobRow:
    job: Job
    changed_s: float
    failure: LatestFailure | None


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Everything about a job. Attempts and exceptions come latest first."""

    job: Job
    changed_s: float
    attempts: tuple[JudgedAttempt, ...]
    exceptions: tuple[DecidedException, ...]


def find_jobs(
    reader: Reader,
    *,
    states: Iterable[str] = (),
    user: str = "",
    text: str = "",
    partition: str = "",
    submitted: Within = ALWAYS,
    order: SortOrder | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[JobRow]:
    """Jobs, the latest known first; `text` is an id (of an array: all its tasks), a user, or part of a name."""
    query = select(jobs.c.seq, jobs.c.changed_s, as_text(jobs.c.payload).label("payload"))
    query = query.where(reader.owns(jobs), *submitted.of(jobs.c.submit_s)).limit(limit + 1)
    query = in_order(query, jobs, cursor, order, SORTED_BY)
    if partition:
        query = query.where(in_partition(partition))
    if wanted := list(states):
        query = query.where(jobs.c.state.in_(wanted))
    if user:
        query = query.where(jobs.c.user == clean(user))
    if text:
        query = query.where(_matches(clean(text)))
    rows = reader.all(query)
    found = [codec.JOB.decode(row.payload) for row in rows]
    failures = _latest_failures(reader, [job.job_id for job in found])
    items = [JobRow(job, row.changed_s, failures.get(job.job_id)) for job, row in zip(found, rows, strict=True)]
    return paged(rows, items, limit)


def _matches(text: str) -> Any:
    return or_(
        jobs.c.job_id == text,
        jobs.c.job_id.startswith(f"{text}_", autoescape=True),
        jobs.c.name.icontains(text, autoescape=True),
        jobs.c.user == text,
    )


def _latest_failures(reader: Reader, job_ids: list[str]) -> dict[str, LatestFailure]:
    if not job_ids:
        return {}
    newest = (
        select(func.max(exceptions.c.seq))
        .where(
            exceptions.c.cluster == reader.cluster,
            exceptions.c.job_id.in_(job_ids),
            exceptions.c.of_attempt,
            of_this_job(exceptions),
        )
        .group_by(exceptions.c.job_id)
    )
    query = select(exceptions.c.job_id, exceptions.c.type, exceptions.c.decision, exceptions.c.state).where(
        exceptions.c.seq.in_(newest)
    )
    return {row.job_id: LatestFailure(category_of(row.type), row.decision, row.state) for row in reader.all(query)}


def category_of(exception_type: str) -> str:
    """The cause that an exception's dotted type names.

    >>> category_of("job.shape"), category_of("node.failure")
    ('shape', 'node_loss')
    """
    scope, _, cause = exception_type.partition(".")
    return "node_loss" if scope == "node" else cause


def job_detail(reader: Reader, job_id: str) -> JobDetail:
    """Everything about one job. Raises `NotFound`."""
    row = reader.first(
        select(jobs.c.changed_s, as_text(jobs.c.payload).label("payload")).where(*_of(reader, jobs, job_id))
    )
    if row is None:
        raise NotFound(f"job {job_id[:80]!r}", "no such job is known", "List the known ones: perdure jobs")
    job = codec.JOB.decode(row.payload)
    return JobDetail(job, row.changed_s, _attempts(reader, job_id), _exceptions(reader, job_id))


def owner_of(reader: Reader, job_id: str) -> str:
    """The user whose job it is. Raises `NotFound`."""
    row = reader.first(select(jobs.c.user).where(*_of(reader, jobs, job_id)))
    if row is None:
        raise NotFound(f"job {job_id[:80]!r}", "no such job is known", "List the known ones: perdure jobs")
    return str(row.user)


def owners_of_log(reader: Reader, job_id: str, incarnation: int | None) -> set[str]:
    """Whose log it is: the job's user, and the attempt's own. Raises `NotFound`.

    They are two where the resource manager lost its state and gave the id to another's job.
    """
    owners = {owner_of(reader, job_id)}
    found = latest_attempt(reader, job_id) if incarnation is None else _attempt(reader, job_id, incarnation)
    return owners | {found.user} if found and found.user else owners


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose job an id is, and since when it is, where another had it before."""

    user: str
    since_s: float

    def at(self, time_s: float) -> str:
        """The job's owner at an instant; "" where that is no longer known."""
        return self.user if time_s >= self.since_s else ""


def owners_of(reader: Reader, job_ids: Iterable[str]) -> dict[str, Owner]:
    """The users whose jobs these are, by job id."""
    query = select(jobs.c.job_id, jobs.c.user, jobs.c.story_known_s)
    rows = reader.all(query.where(jobs.c.cluster == reader.cluster, jobs.c.job_id.in_(list(job_ids))))
    return {row.job_id: Owner(row.user, row.story_known_s) for row in rows}


NOBODY = Owner("", 0.0)


@dataclass(frozen=True, slots=True)
class JobName:
    """What a row about a job says of it."""

    name: str
    user: str
    partition: str


def names_of(reader: Reader, job_ids: Iterable[str]) -> dict[str, JobName]:
    """Name, user and partition of these jobs, by job id."""
    columns = (jobs.c.job_id, jobs.c.name, jobs.c.user, jobs.c.partition)
    query = select(*columns).where(jobs.c.cluster == reader.cluster, jobs.c.job_id.in_(list(job_ids)))
    return {row.job_id: JobName(row.name, row.user, row.partition) for row in reader.all(query)}


@dataclass(frozen=True, slots=True)
class JudgedLine:
    """Of a judged attempt: whose it was, the nodes that failed or that it ran on, and the line that names its cause."""

    user: str
    nodes: tuple[str, ...]
    root: str


def root_lines(reader: Reader, job_ids: Iterable[str]) -> dict[tuple[str, int], JudgedLine]:
    """What is shown of the judged attempts of these jobs, by job and incarnation."""
    a = attempts.c
    query = select(a.job_id, a.incarnation, as_text(a.payload).label("payload"), as_text(a.verdict).label("verdict"))
    query = query.where(a.cluster == reader.cluster, a.job_id.in_(list(job_ids)), a.verdict.is_not(None))
    found = {}
    for row in reader.all(query):
        verdict = verdict_of(row.verdict)
        lines = [item.text for item in verdict.shown_evidence if item.role is CauseRole.ROOT] if verdict else []
        attempt = codec.ATTEMPT.decode(row.payload)
        nodes = attempt.failed_nodes or attempt.nodes
        found[row.job_id, row.incarnation] = JudgedLine(attempt.user, nodes, lines[0] if lines else "")
    return found


def latest_attempt(reader: Reader, job_id: str) -> Attempt | None:
    found = _attempts(reader, job_id, limit=1)
    return found[0].attempt if found else None


def _attempt(reader: Reader, job_id: str, incarnation: int) -> Attempt | None:
    query = select(as_text(attempts.c.payload).label("payload"))
    row = reader.first(query.where(*_of(reader, attempts, job_id), attempts.c.incarnation == incarnation))
    return codec.ATTEMPT.decode(row.payload) if row else None


def _of(reader: Reader, table: Any, job_id: str) -> tuple[Any, ...]:
    return table.c.cluster == reader.cluster, table.c.job_id == clean(job_id)


def _attempts(reader: Reader, job_id: str, limit: int = MAX_ATTEMPTS) -> tuple[JudgedAttempt, ...]:
    query = (
        select(as_text(attempts.c.payload).label("payload"), as_text(attempts.c.verdict).label("verdict"))
        .where(*_of(reader, attempts, job_id), of_this_job(attempts))
        .order_by(attempts.c.incarnation.desc())
        .limit(limit)
    )
    return tuple(JudgedAttempt(codec.ATTEMPT.decode(row.payload), verdict_of(row.verdict)) for row in reader.all(query))


def _exceptions(reader: Reader, job_id: str) -> tuple[DecidedException, ...]:
    query = select(*exception_columns()).where(*_of(reader, exceptions, job_id), of_this_job(exceptions))
    rows = reader.all(query.order_by(exceptions.c.seq.desc()).limit(MAX_EXCEPTIONS))
    return tuple(decided_exception(row) for row in rows)


def exception_columns() -> tuple[Any, ...]:
    """What `decided_exception` reads."""
    e = exceptions.c
    return (
        e.seq,
        e.state.label("exception_state"),
        e.owner,
        e.decision,
        e.reason,
        e.wasted_gpu_h,
        e.saved_gpu_h,
        e.of_attempt,
        as_text(e.payload).label("record"),
        as_text(e.decided).label("decided"),
    )


def decided_exception(row: Any) -> DecidedException:
    return DecidedException(
        codec.EXCEPTION.decode(row.record),
        row.exception_state,
        row.owner,
        row.decision,
        row.reason,
        row.wasted_gpu_h,
        row.saved_gpu_h,
        codec.DECISION.decode(row.decided) if _is_json(row.decided) else None,
        row.of_attempt,
    )


def verdict_of(text: str | None) -> Verdict | None:
    return codec.VERDICT.decode(text) if _is_json(text) else None


def _is_json(text: str | None) -> TypeGuard[str]:
    """An absent value may be SQL's NULL or JSON's."""
    return text is not None and text != "null"


def same_attempt(left: Any, right: Any) -> Any:
    """Join two tables on the attempt that a row is about."""
    return and_(
        left.c.cluster == right.c.cluster,
        left.c.job_id == right.c.job_id,
        left.c.incarnation == right.c.incarnation,
    )


def same_job(left: Any, right: Any) -> Any:
    """Join two tables on the job that a row is about."""
    return and_(left.c.cluster == right.c.cluster, left.c.job_id == right.c.job_id)


def running_attempts(reader: Reader, job_ids: Iterable[str]) -> dict[str, Attempt]:
    """The attempts of these jobs that run now, by job id."""
    query = select(attempts.c.job_id, as_text(attempts.c.payload).label("payload")).where(
        attempts.c.cluster == reader.cluster,
        attempts.c.job_id.in_(list(job_ids)),
        attempts.c.state.in_(("running", "suspended")),
        of_this_job(attempts),
    )
    return {row.job_id: codec.ATTEMPT.decode(row.payload) for row in reader.all(query)}


def waiting_among(reader: Reader, job_ids: Iterable[str]) -> frozenset[str]:
    """Those of these jobs that wait."""
    query = select(jobs.c.job_id).where(
        jobs.c.cluster == reader.cluster, jobs.c.job_id.in_(list(job_ids)), jobs.c.state.in_(WAITING)
    )
    return frozenset(row.job_id for row in reader.all(query))
