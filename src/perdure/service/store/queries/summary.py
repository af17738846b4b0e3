"""How the cluster is as a whole: counts, causes, decisions and GPU-hours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from sqlalchemy import BigInteger, case, cast, func, select
from sqlalchemy import Float as SqlFloat

from perdure.coordination.record import ExceptionOutcome
from perdure.service.store import codec
from perdure.service.store.queries.jobs import (
    LIVE,
    DecidedException,
    category_of,
    decided_exception,
    exception_columns,
    same_attempt,
    same_job,
    verdict_of,
)
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import attempts, exceptions, jobs, nodes
from perdure.triage.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs and GPUs in one state."""

    jobs: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class CauseCount:
    """Failures of one category."""

    category: str
    failures: int
    recovered: int
    wasted_gpu_h: float
    saved_gpu_h: float
    limited: int  # stopped by a limit, or retried later for one
    limit_gpu_h: float  # what the stops among them are expected to cost


@dataclass(frozen=True, slots=True)
class Spell:
    """GPU-hours of one stretch of time."""

    start_s: float
    wasted_gpu_h: float
    saved_gpu_h: float
    failures: int


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision, with the job and the verdict that it is about."""

    exception: DecidedException
    job_name: str
    user: str
    job_state: str
    verdict: Verdict | None


def load(reader: Reader) -> Mapping[str, Load]:
    """Jobs that are not over, by state."""
    query = (
        select(jobs.c.state, func.count(), func.coalesce(func.sum(jobs.c.gpus), 0))
        .where(reader.owns(jobs), jobs.c.state.in_(LIVE))
        .group_by(jobs.c.state)
    )
    return {state: Load(number, int(gpus)) for state, number, gpus in reader.all(query)}


def gpus(reader: Reader) -> int:
    """GPUs there are."""
    rows = reader.all(select(as_text(nodes.c.payload).label("payload")).where(nodes.c.cluster == reader.cluster))
    return sum(codec.NODE.decode(row.payload).gpus for row in rows)


def causes(reader: Reader, since_s: float) -> tuple[CauseCount, ...]:
    """What failed since an instant, by category; the most frequent first."""
    recovered = func.sum(case((exceptions.c.state == ExceptionOutcome.RECOVERED.value, 1), else_=0))
    query = (
        select(
            exceptions.c.type,
            func.count(),
            recovered,
            func.sum(exceptions.c.wasted_gpu_h),
            func.sum(exceptions.c.saved_gpu_h),
            func.sum(case((exceptions.c.limited, 1), else_=0)),
            func.sum(exceptions.c.limit_gpu_h),
        )
        .where(reader.owns(exceptions), exceptions.c.time_s >= since_s, exceptions.c.of_attempt)
        .group_by(exceptions.c.type)
    )
    found: dict[str, CauseCount] = {}
    for kind, *sums in reader.all(query):
        name = category_of(kind)
        old = found.get(name, CauseCount(name, 0, 0, 0.0, 0.0, 0, 0.0))
        _, *before = astuple(old)
        found[name] = CauseCount(name, *(one + other for one, other in zip(before, sums, strict=True)))
    return tuple(sorted(found.values(), key=lambda cause: (-cause.failures, cause.category)))


def spells(reader: Reader, since_s: float, until_s: float, length_s: float) -> tuple[Spell, ...]:
    """GPU-hours wasted and saved in each stretch of `length_s` seconds, the empty ones among them."""
    index = cast(func.floor((exceptions.c.time_s - since_s) / cast(length_s, SqlFloat)), BigInteger)
    query = (
        select(index, func.sum(exceptions.c.wasted_gpu_h), func.sum(exceptions.c.saved_gpu_h), func.count())
        .where(reader.owns(exceptions), exceptions.c.time_s.between(since_s, until_s), exceptions.c.of_attempt)
        .group_by(index)
    )
    found = {number: (wasted, saved, failures) for number, wasted, saved, failures in reader.all(query)}
    return tuple(
        Spell(since_s + number * length_s, *found.get(number, (0.0, 0.0, 0)))
        for number in range(int((until_s - since_s) // length_s) + 1)
    )


def first_failure_s(reader: Reader, since_s: float) -> float | None:
    """When the first failure since an instant was raised; None where there was none."""
    row = reader.first(
        select(func.min(exceptions.c.time_s).label("first")).where(
            reader.owns(exceptions), exceptions.c.time_s >= since_s, exceptions.c.of_attempt
        )
    )
    return row.first if row else None


def waiting_for_a_person(reader: Reader) -> int:
    """How many exceptions nobody could see to are still open."""
    e = exceptions.c
    query = select(func.count().label("number")).where(e.cluster == reader.cluster, e.is_open, e.state == "escalated")
    row = reader.first(query)
    return row.number if row else 0


def latest_decisions(reader: Reader, limit: int) -> tuple[DecisionRow, ...]:
    """What was decided last, the latest first."""
    query = (
        select(
            *exception_columns(),
            jobs.c.name,
            jobs.c.user,
            jobs.c.state.label("job_state"),
            as_text(attempts.c.verdict).label("verdict"),
        )
        .select_from(exceptions)
        .outerjoin(jobs, same_job(exceptions, jobs))
        .outerjoin(attempts, same_attempt(exceptions, attempts))
        .where(reader.owns(exceptions), exceptions.c.decision != "")
        .order_by(exceptions.c.seq.desc())
        .limit(limit)
    )
    return tuple(
        DecisionRow(
            decided_exception(row), row.name or "", row.user or "", row.job_state or "", verdict_of(row.verdict)
        )
        for row in reader.all(query)
    )
