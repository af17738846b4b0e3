"""The journal's events as facts that notices can follow from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, select

from perdure.model.clean_text import clean
from perdure.model.events import NodeChanged, SightChanged
from perdure.model.jobs import Job
from perdure.retry.decide import Decision
from perdure.service.core.messages import ExceptionChanged
from perdure.service.notices.derive import NoticeFact
from perdure.service.store import codec
from perdure.service.store.codec import Codec
from perdure.service.store.database import Store
from perdure.service.store.packed import unpack
from perdure.service.store.queries.events import newest_of
from perdure.service.store.queries.reader import Reader, as_text
from perdure.service.store.schema import events, exceptions, jobs

BATCH = 500
EVENT: Codec[NodeChanged | SightChanged | ExceptionChanged] = Codec(NodeChanged | SightChanged | ExceptionChanged)
_KINDS = ("node_changed", "sight_changed", "exception_changed")


@dataclass(frozen=True, slots=True)
class Batch:
    """Facts in the order in which they were journalled, and the event up to which the journal was read."""

    facts: tuple[NoticeFact, ...]
    seq: int
    more: bool = False


def newest(store: Store, cluster: str) -> int:
    """The newest event of a cluster; 0 where there is none."""
    with store.reading() as db:
        return db.scalar(newest_of(Reader(store.engine, cluster))) or 0


def facts_after(store: Store, cluster: str, seq: int, limit: int = BATCH) -> Batch:
    """What was journalled after `seq`: at most `limit` events."""
    columns = (events.c.seq, events.c.payload)
    reader = Reader(store.engine, cluster)
    mine = (reader.owns(events), events.c.seq > seq, events.c.kind.in_(_KINDS))
    with store.reading() as db:
        last: int = db.scalar(newest_of(reader)) or seq
        rows = db.execute(select(*columns).where(*mine).order_by(events.c.seq).limit(limit)).all()
        found = [EVENT.decode(unpack(row.payload)) for row in rows]
        facts = _with_surroundings(db, cluster, found)
    full = len(rows) == limit
    read = int(rows[-1].seq) if rows else seq
    return Batch(facts, read if full else max(last, read), full)


def _with_surroundings(db: Connection, cluster: str, found: Sequence[Any]) -> tuple[NoticeFact, ...]:
    records = [each.record for each in found if isinstance(each, ExceptionChanged)]
    known_jobs = _jobs(db, cluster, {record.subject.job_id for record in records} - {""})
    decided = _decisions(db, {record.id for record in records})
    return tuple(
        NoticeFact(each, known_jobs.get(clean(each.record.subject.job_id)), decided.get(clean(each.record.id)))
        if isinstance(each, ExceptionChanged)
        else NoticeFact(each)
        for each in found
    )


def _jobs(db: Connection, cluster: str, job_ids: Iterable[str]) -> dict[str, Job]:
    query = select(jobs.c.job_id, as_text(jobs.c.payload).label("text")).where(jobs.c.cluster == cluster)
    return {row.job_id: codec.JOB.decode(row.text) for row in _in_parts(db, query, jobs.c.job_id, job_ids)}


def _decisions(db: Connection, ids: Iterable[str]) -> dict[str, Decision]:
    decided = exceptions.c.decided
    query = select(exceptions.c.id, as_text(decided).label("text")).where(decided.is_not(None))
    return {row.id: codec.DECISION.decode(row.text) for row in _in_parts(db, query, exceptions.c.id, ids)}


def _in_parts(db: Connection, query: Select[Any], column: Any, values: Iterable[str]) -> list[Any]:
    wanted = sorted(map(clean, values))
    return list(db.execute(query.where(column.in_(wanted)))) if wanted else []
