"""How a listing is narrowed, ordered and cut into pages, the same for every table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, func, literal, or_, select

from perdure.model.clean_text import clean
from perdure.service.store.queries.reader import Reader, position
from perdure.service.store.schema import jobs


@dataclass(frozen=True, slots=True)
class SortOrder:
    """By which column rows are sorted; those that are alike in it come latest first."""

    column: str
    falling: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    """A stretch of time, in seconds since the epoch; None is open."""

    since_s: float | None = None
    until_s: float | None = None

    def of(self, column: ColumnElement[float]) -> list[ColumnElement[bool]]:
        """The conditions under which an instant lies in it."""
        found = []
        if self.since_s is not None:
            found.append(column >= self.since_s)
        if self.until_s is not None:
            found.append(column <= self.until_s)
        return found


ALWAYS = Within()


def in_order(
    query: Select[Any],
    table: Table,
    cursor: str | None,
    order: SortOrder | None,
    columns: Mapping[str, ColumnElement[Any]],
) -> Select[Any]:
    """The part of a listing that follows `cursor`, the `seq` of the row before; None orders the latest first.

    The value of that row is looked up again: a cursor stays a plain number, and names nothing that was hidden.
    """
    seq, before = table.c.seq, position(cursor)
    if order is None or order.column not in columns:
        return query.where(seq < before).order_by(seq.desc())
    column = columns[order.column]
    if cursor:
        last = select(column).where(seq == before).scalar_subquery()
        onward = column < last if order.falling else column > last
        query = query.where(or_(onward, and_(column == last, seq < before)))
    return query.order_by(column.desc() if order.falling else column, seq.desc())


def of_jobs(
    reader: Reader, column: ColumnElement[str], user: str = "", partition: str = ""
) -> list[ColumnElement[bool]]:
    """The conditions under which `column` names a job of that user and partition; none where neither is given."""
    if not (user or partition):
        return []
    wanted = select(jobs.c.job_id).where(jobs.c.cluster == reader.cluster)
    if user:
        wanted = wanted.where(jobs.c.user == clean(user))
    if partition:
        wanted = wanted.where(in_partition(partition))
    return [column.in_(wanted)]


def in_partition(partition: str) -> ColumnElement[bool]:
    """The condition under which a job may run in a partition: its own, or one of several, as in "a,b"."""
    several = literal(",").concat(jobs.c.partition).concat(",")
    return func.replace(several, f",{clean(partition)},", "") != several  # LIKE knows no case in SQLite
