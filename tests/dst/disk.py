"""The journal's database in memory, where a service can die and a disk can fail at every write.

The statements are the journal's own, compiled by SQLAlchemy once and then run by SQLite without it: a hundred
thousand lives of a service are not to wait for its machinery.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import ClauseElement, Connection, Engine, create_engine
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.pool import StaticPool

from perdure.errors import StateError
from perdure.service.store.database import Store
from perdure.service.store.journal import Journal
from perdure.service.store.schema import metadata

TABLES = (
    "events",
    "jobs",
    "attempts",
    "nodes",
    "exceptions",
    "handlers",
    "actions",
    "cases",
    "memory",
    "policy_jobs",
    "wait_promises",
)


def _as_is(text: Any) -> str:
    return text


DIALECT = sqlite_dialect(paramstyle="qmark", json_serializer=_as_is)


class Crash(BaseException):
    """The service is dead: nothing of it may run on, so nothing may catch this but the simulation."""


class Fuse:
    """Ends the service at the `left`-th point that it passes from now on; 0 is never."""

    def __init__(self) -> None:
        self.left = 0

    def passed(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                raise Crash


class Disk:
    """What `perdure.service.store.database.Store` is to the journal; one for all seeds of a process, wiped for each.

    A transaction that dies before its commit is gone, one that dies after it is there, though nobody was told.
    """

    where = "memory"
    trouble, wrote_s = "", float("inf")  # it is always ready

    def __init__(self) -> None:
        self.raw = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512, check_same_thread=False)
        self.reader = create_engine("sqlite://", creator=lambda: self.raw, poolclass=StaticPool)  # what pages read with
        metadata.create_all(self.reader)
        self._drop_indexes()
        self.engine: Disk | Engine = self  # the journal asks it for its dialect alone
        self.dialect = DIALECT
        self._transaction, self._known = _Transaction(self, _Connection(self.raw)), _Reader(self.raw)
        self._reading = nullcontext(self._known)
        self.fuse = Fuse()
        self.full = 0  # so many writes find no room

    def _drop_indexes(self) -> None:
        """Those that make reading fast, but forbid nothing: a seed has a few hundred rows."""
        for table in metadata.tables.values():
            for index in table.indexes:
                if not index.unique:
                    self.raw.execute(f"DROP INDEX {index.name}")

    def wipe(self) -> None:
        for table in TABLES:
            self.raw.execute(f"DELETE FROM {table}")
        self.forget_reads()
        self.fuse.left, self.full = 0, 0

    def writing(self) -> AbstractContextManager[Any]:
        self.fuse.passed()
        return self._transaction

    def reading(self) -> AbstractContextManager[Any]:
        return self._reading

    def beside(self) -> AbstractContextManager[Connection]:
        """What the laws write by themselves: it is not lost, and nothing dies in it."""
        return self.reader.begin()

    def forget_reads(self) -> None:
        """Something has been written since."""
        self._known.answers.clear()

    def check_room(self) -> None:
        if self.full:
            self.full -= 1
            raise StateError(self.where, "disk is full", "Free some space on its disk")

    def close(self) -> None:
        """It outlives every service."""


def journal_on(disk: Disk, cluster: str) -> Journal:
    """It uses no more of a store than a `Disk` has."""
    return Journal(cast("Store", disk), cluster)


class _Transaction:
    """One write: all of it, or nothing."""

    def __init__(self, disk: Disk, connection: _Connection) -> None:
        self._disk, self._connection = disk, connection

    def __enter__(self) -> _Connection:
        self._disk.raw.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: object, *_: object) -> None:
        disk = self._disk
        disk.forget_reads()
        try:
            if kind is None:
                disk.check_room()
                disk.fuse.passed()
        except BaseException:
            disk.raw.execute("ROLLBACK")
            raise
        disk.raw.execute("COMMIT" if kind is None else "ROLLBACK")
        if kind is None:
            disk.fuse.passed()


Values = dict[str, Any]


class _Connection:
    """The part of `sqlalchemy.Connection` that the journal uses."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._row_of = {}  # by statement: what makes a row of it; None where it has none

    def execute(self, statement: ClauseElement, values: Values | list[Values] | None = None) -> sqlite3.Cursor:
        if isinstance(values, list):
            text, places = _compiled(statement, tuple(values[0]))
            return self._raw.executemany(text, [places(each) for each in values])
        values = values or {}
        text, places = _compiled(statement, tuple(values))
        found = self._raw.execute(text, places(values))
        if text not in self._row_of:
            self._row_of[text] = _row_of(found.description)
        found.row_factory = self._row_of[text]
        return found

    def exec_driver_sql(self, text: str, values: tuple[Any, ...] | list[Any]) -> sqlite3.Cursor:
        return self._raw.execute(text, values) if isinstance(values, tuple) else self._raw.executemany(text, values)


class _Reader:
    """Reads; what has been asked since the last write is not asked again."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._asks = _Connection(raw)
        self.answers: dict[tuple[Any, ...], list[Any]] = {}

    def execute(self, statement: ClauseElement, values: Values | None = None) -> list[Any]:
        asked = statement, *(values or {}).values()
        if asked not in self.answers:
            self.answers[asked] = self._asks.execute(statement, values).fetchall()
        return self.answers[asked]

    def scalars(self, statement: ClauseElement, values: Values | None = None) -> list[Any]:
        return [row[0] for row in self.execute(statement, values)]

    def scalar(self, statement: ClauseElement, values: Values | None = None) -> Any:
        return next(iter(self.scalars(statement, values)), None)

    def exec_driver_sql(self, text: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        return self._asks.exec_driver_sql(text, values)


@cache
def _compiled(statement: Any, names: tuple[str, ...]) -> tuple[str, Callable[[Any], Any]]:
    """The SQL text of a statement for values of these names, and how they are put into their places."""
    made = statement.compile(dialect=DIALECT, column_keys=list(names) or None, compile_kwargs=POST_COMPILE)
    fixed, order = made.construct_params(_check=False), made.positiontup or ()
    if not order:
        return str(made), lambda values: ()
    in_order = itemgetter(*order) if len(order) > 1 else lambda values: (values[order[0]],)
    if names and set(order) <= set(names):
        return str(made), in_order
    return str(made), lambda values: in_order({**fixed, **values})


POST_COMPILE = {"render_postcompile": True}


def _row_of(description: Any) -> Callable[[Any, Any], Any] | None:
    if description is None:
        return None
    names = [name if name.isidentifier() else f"column{place}" for place, (name, *_) in enumerate(description)]
    kind: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # its names are known only here
    return lambda _, row: kind._make(row)
