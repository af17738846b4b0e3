"""The journal's database in memory, where a service can die and a disk can fail at every write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, event
from sqlalchemy.pool import StaticPool

from perdure.errors import StateError
from perdure.service.schema import metadata

TABLES = ("events", "jobs", "attempts", "nodes", "exceptions", "handlers", "actions", "cases", "memory")


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
    """What `perdure.service.store.Store` is to the journal; one for all seeds of a process, wiped for each.

    A transaction that dies before its commit is gone, one that dies after it is there, though nobody was told.
    """

    dialect = "sqlite"
    where = "memory"

    def __init__(self) -> None:
        self.raw = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self.engine = create_engine(
            "sqlite://", creator=lambda: self.raw, poolclass=StaticPool, json_serializer=lambda text: text
        )
        metadata.create_all(self.engine)
        self._reader = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._writer = self.engine.connect()
        event.listen(self._writer, "begin", lambda db: db.exec_driver_sql("BEGIN IMMEDIATE"))
        self.fuse = Fuse()
        self.full = False  # True: the next write finds no room

    def wipe(self) -> None:
        for table in TABLES:
            self.raw.execute(f"DELETE FROM {table}")
        self.fuse.left, self.full = 0, False

    @contextmanager
    def writing(self) -> Iterator[object]:
        self.fuse.passed()
        with self._writer.begin():
            yield self._writer
            if self.full:
                self.full = False
                raise StateError(self.where, "disk is full", "Free some space on its disk")
            self.fuse.passed()
        self.fuse.passed()

    @contextmanager
    def reading(self) -> Iterator[object]:
        yield self._reader

    def close(self) -> None:
        """It outlives every service."""
