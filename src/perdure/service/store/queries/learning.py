"""What the service has learnt, and what failed alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, select

from perdure.coordination.record import ExceptionOutcome
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import corrections, exceptions, readings, terms

MOST_OF_JOB = 20
"""Corrections that are told of one job."""


@dataclass(frozen=True, slots=True)
class TermRow:
    """One training round: `term` has the fields of `triage.learning.update.RoundResult`."""

    number: int
    time_s: float
    term: Mapping[str, Any]
    in_use: bool


@dataclass(frozen=True, slots=True)
class CorrectionRow:
    """A person's word on a failure."""

    job_id: str
    incarnation: int
    time_s: float
    transient: bool
    by: str
    for_all: bool
    confirmed_by: str = ""  # the operator who made a user's word hold for all
    message: str = ""  # the failure's root line, normalised; "" where none was read

    @property
    def label(self) -> str:
        return "transient" if self.transient else "deterministic"

    @property
    def word(self) -> str:
        """Names this very word: another attempt, label, instant or author is another word."""
        return word_of(self.job_id, self.incarnation, self.time_s, self.transient, self.by)


def word_of(job_id: str, incarnation: int, time_s: float, transient: bool, by: str) -> str:
    """What an operator names who confirms a word as it was seen: it may have changed since.

    >>> word_of("7", 1, 5.0, True, "ada") == word_of("7", 1, 6.0, True, "ada")
    False
    """
    said = json.dumps([job_id, incarnation, time_s, transient, by])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Similar:
    """Failures that look like one failure, itself among them, and how they ended."""

    failures: int
    jobs: int
    users: int
    recovered: int  # whose job then passed


def rounds(reader: Reader, limit: int = 50) -> tuple[TermRow, ...]:
    """The latest rounds of teaching, the newest first."""
    kept = terms.c.model.is_not(None).label("kept")
    query = select(terms.c.seq, terms.c.time_s, as_text(terms.c.payload).label("text"), kept)
    rows = reader.all(query.where(terms.c.cluster == reader.cluster).order_by(terms.c.seq.desc()).limit(limit))
    newest = next((row.seq for row in rows if row.kept), None)
    return tuple(TermRow(row.seq, row.time_s, json.loads(row.text), row.seq == newest) for row in rows)


def model_in_use(reader: Reader) -> int:
    """The number of the training round whose model is in use; 0: the one that came with Perdure is."""
    mine = (terms.c.cluster == reader.cluster, terms.c.model.is_not(None))
    return reader.first(select(func.max(terms.c.seq).label("number")).where(*mine)).number or 0


def all_corrections(reader: Reader, limit: int = 200, by: str | None = None) -> tuple[CorrectionRow, ...]:
    """What persons said, or one of them (`by`), the newest first.

    Beyond `limit` each person's newest are told, as many of one as of another: nobody hides what others said.
    """
    newest = corrections.c.time_s.desc()
    place = func.row_number().over(partition_by=corrections.c.by, order_by=newest).label("place")
    said = [corrections.c.cluster == reader.cluster, *([] if by is None else [corrections.c.by == by])]
    query = _with_messages(place).where(*said).order_by(place, newest).limit(limit)
    return tuple(map(_correction, sorted(reader.all(query), key=lambda row: -row.time_s)))


def correction_of(reader: Reader, job_id: str, incarnation: int) -> CorrectionRow | None:
    """What a person said of this very failure."""
    here = and_(corrections.c.cluster == reader.cluster, corrections.c.job_id == job_id)
    row = reader.first(_with_messages().where(here, corrections.c.incarnation == incarnation))
    return _correction(row) if row else None


def corrections_of(reader: Reader, job_id: str) -> tuple[CorrectionRow, ...]:
    """What persons said of a job's failures, the latest attempt first."""
    here = and_(corrections.c.cluster == reader.cluster, corrections.c.job_id == job_id)
    rows = reader.all(_with_messages().where(here).order_by(corrections.c.incarnation.desc()).limit(MOST_OF_JOB))
    return tuple(_correction(row) for row in rows)


def similar(reader: Reader, fingerprint: str, since_s: float) -> Similar:
    """Failures of this fingerprint since an instant. All zero without any."""
    if not fingerprint:
        return Similar(0, 0, 0, 0)
    same = and_(
        exceptions.c.cluster == readings.c.cluster,
        exceptions.c.job_id == readings.c.job_id,
        exceptions.c.incarnation == readings.c.incarnation,
        exceptions.c.state == ExceptionOutcome.RECOVERED.value,
        exceptions.c.of_attempt,
    )
    counts = (
        func.count(readings.c.seq.distinct()).label("failures"),
        func.count(readings.c.job_id.distinct()).label("jobs"),
        func.count(readings.c.user.distinct()).label("users"),
        func.count(exceptions.c.seq.distinct()).label("recovered"),
    )
    alike = and_(readings.c.cluster == reader.cluster, readings.c.fingerprint == fingerprint)
    row = reader.first(
        select(*counts).select_from(readings.outerjoin(exceptions, same)).where(alike, readings.c.time_s >= since_s)
    )
    return Similar(row.failures, row.jobs, row.users, row.recovered)


def _with_messages(*columns: Any) -> Any:
    """Corrections, each with the message of the failure that it is of."""
    same = and_(*(readings.c[name] == corrections.c[name] for name in ("cluster", "job_id", "incarnation")))
    query = select(corrections, readings.c.message, *columns)
    return query.select_from(corrections.outerjoin(readings, same))


def _correction(row: Any) -> CorrectionRow:
    about = (row.job_id, row.incarnation, row.time_s, row.transient, row.by, row.for_all, row.confirmed_by)
    return CorrectionRow(*about, message=row.message or "")
