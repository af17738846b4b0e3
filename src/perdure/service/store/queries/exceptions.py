"""Exceptions as they were written down: of failed attempts, and raised ones."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, and_, literal, or_, select

from perdure.coordination.record import ExceptionRecord
from perdure.errors import NotFound
from perdure.model.clean_text import clean
from perdure.service.store import codec
from perdure.service.store.queries.order import ALWAYS, SortOrder, Within, in_order, of_jobs
from perdure.service.store.queries.reader import Page, Reader, as_text, paged
from perdure.service.store.queries.story import of_this_job
from perdure.service.store.schema import exceptions, jobs

SORTED_BY = {
    "what": exceptions.c.type,
    "job": exceptions.c.job_id,
    "outcome": exceptions.c.state,
    "raised": exceptions.c.time_s,
}


def find_exceptions(
    reader: Reader,
    *,
    job_id: str = "",
    types: Iterable[str] = (),
    states: Iterable[str] = (),
    only_open: bool = False,
    user: str | None = None,
    of_user: str = "",
    partition: str = "",
    raised: Within = ALWAYS,
    order: SortOrder | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[ExceptionRecord]:
    """Exceptions, the latest first; shown to `user`: those about that user's jobs, and about none.

    `of_user` and `partition` narrow them to those about such jobs.
    """
    places = select(exceptions.c.seq).where(*raised.of(exceptions.c.time_s))
    places = places.where(*of_jobs(reader, exceptions.c.job_id, of_user, partition))
    few = bool(job_id) or only_open or user is not None  # then the indices that begin with the cluster are the best
    places = places.where(exceptions.c.cluster == reader.cluster if few else reader.owns(exceptions))
    if job_id:
        places = places.where(exceptions.c.job_id == clean(job_id), of_this_job(exceptions))
    if wanted := [clean(kind) for kind in types]:
        below = [exceptions.c.type.startswith(f"{kind}.", autoescape=True) for kind in wanted]
        places = places.where(or_(exceptions.c.type.in_(wanted), *below))
    if stands := list(states):
        places = places.where(exceptions.c.state.in_(stands))
    if only_open:
        places = places.where(exceptions.c.is_open)
    if user is not None:
        places = places.where(_is_shown_to(reader, user))
    latest = in_order(places, exceptions, cursor, order, SORTED_BY).limit(limit + 1)  # by an index alone, if it can be
    query = select(exceptions.c.seq, as_text(exceptions.c.payload).label("payload"))
    rows = reader.all(in_order(query.where(exceptions.c.seq.in_(latest)), exceptions, None, order, SORTED_BY))
    return paged(rows, [codec.EXCEPTION.decode(row.payload) for row in rows], limit)


def exception(reader: Reader, exception_id: str) -> ExceptionRecord:
    """One exception by its id. Raises `NotFound`."""
    query = select(as_text(exceptions.c.payload).label("payload"))
    row = reader.first(query.where(reader.owns(exceptions), exceptions.c.id == clean(exception_id)))
    if row is None:
        raise NotFound(f"exception {exception_id}", "no such exception is known", "See `perdure events`")
    return codec.EXCEPTION.decode(row.payload)


def is_of_this_job(reader: Reader, exception_id: str) -> bool:
    """Whether an exception is about the job that has its job's id now."""
    query = select(exceptions.c.seq).where(exceptions.c.id == clean(exception_id))
    return reader.first(query.where(reader.owns(exceptions), of_this_job(exceptions))) is not None


def children_of(
    reader: Reader, exception_id: str, within: tuple[float, float], *, user: str | None = None, limit: int = 50
) -> tuple[ExceptionRecord, ...]:
    """Exceptions that follow from one and were raised `within` two instants, the oldest first; of `user` as above."""
    query = (
        select(as_text(exceptions.c.payload).label("payload"))
        .where(
            reader.owns(exceptions),
            exceptions.c.time_s.between(*within),
            exceptions.c.payload["cause"].as_string() == clean(exception_id),
        )
        .order_by(exceptions.c.seq)
        .limit(limit)
    )
    if user is not None:
        query = query.where(_is_shown_to(reader, user))
    return tuple(codec.EXCEPTION.decode(row.payload) for row in reader.all(query))


def _is_shown_to(reader: Reader, user: str) -> ColumnElement[bool]:
    mine = select(jobs.c.job_id).where(reader.owns(jobs), jobs.c.user == clean(user))
    return and_(exceptions.c.job_id.in_(mine.union_all(select(literal("")))), of_this_job(exceptions))
