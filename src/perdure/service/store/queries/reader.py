"""Reading the journal: one cluster's rows, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Engine, Executable, Table, Text, cast
from sqlalchemy.exc import SQLAlchemyError

from perdure.errors import InputError, StateError

T = TypeVar("T")

MAX_LIMIT = 200
CURSOR_DIGITS = 18  # all of whose numbers are below MAX_CURSOR
MAX_CURSOR = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a listing; `next_cursor` asks for the next one, None at the end."""

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Where to read: an engine that need not be able to write, and the cluster that is meant."""

    engine: Engine
    cluster: str

    def all(self, statement: Executable) -> Sequence[Any]:
        """All rows, each with its columns by name. Raises `StateError` where the journal does not answer."""
        try:
            with self.engine.connect() as db:
                return db.execute(statement).all()
        except SQLAlchemyError as err:
            said = " ".join(str(getattr(err, "orig", None) or err).split())
            raise StateError("the journal", f"cannot be read: {said}", "See that its database runs") from err

    def owns(self, table: Table) -> ColumnElement[bool]:
        """Rows of this cluster, for questions that have a better index than one that begins with the cluster.

        A planner without statistics would take that one all the same, and then read and sort the whole cluster.
        """
        return table.c.cluster.concat("") == self.cluster

    def first(self, statement: Executable) -> Any:
        """The first row, or None."""
        rows = self.all(statement)
        return rows[0] if rows else None


def as_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """A JSON column as the text that `perdure.service.store.codec` reads."""
    return cast(column, Text)


def position(cursor: str | None) -> int:
    """The place in a listing that a cursor stands for: everything before this `seq`. Raises `InputError`."""
    if cursor is None or cursor == "":
        return MAX_CURSOR
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= CURSOR_DIGITS):
        raise InputError("cursor", f"{cursor[:40]!r} is not a cursor", "Take the next_cursor of the page before")
    return int(cursor)


def paged(rows: Sequence[Any], items: Sequence[T], limit: int) -> Page[T]:
    """A page out of up to ``limit + 1`` rows: the one too many only tells that there is more."""
    more = len(rows) > limit
    return Page(tuple(items[:limit]), str(rows[limit - 1].seq) if more else None)
