"""A campaign of power cuts on a service at work, and the reckoning: which acknowledged state was lost.

The service is that of the deterministic simulation, among all its faults, on a journal of real files.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Connection

from perdure.errors import StateError
from perdure.service.store import database as store
from perdure.service.store.journal import Journal
from tests.crash.power import Cut, PowerSupply
from tests.dst.disk import TABLES, Disk, Fuse, journal_on
from tests.dst.simulation import CLUSTER, Simulation

SHARE = 0.03  # of the writes and syncs
MOST_OF_ONE = 60  # cuts of one service: each is a copy of its files
STARTS_EACH = 10  # of so many cuts, one is followed by a start of the service's journal


@dataclass(frozen=True, slots=True)
class Result:
    cuts: int
    states: int  # that were acknowledged
    lost: tuple[str, ...]


class FileDisk(Disk):
    """What `tests.dst.disk.Disk` is, on files; it writes down what the journal holds after each transaction."""

    def __init__(self, directory: Path, power: PowerSupply) -> None:
        self._store, self._power = store.Store.open(directory, CLUSTER), power
        self.engine = self.reader = self._store.engine
        self.raw = sqlite3.connect(directory / store.FILE_NAME, isolation_level=None)
        self.fuse, self.full = Fuse(), 0
        self.states = [digest(self.raw)]
        power.acknowledged = 1

    def wipe(self) -> None:
        """Each has a directory of its own."""

    @contextmanager
    def writing(self) -> Iterator[Any]:
        self.fuse.passed()
        with self._store.writing() as db:
            yield db
            if self.full:
                self.full -= 1
                raise StateError("disk", "disk is full", "Free some space on its disk")
            self.fuse.passed()
        self._note()
        self.fuse.passed()

    @contextmanager
    def beside(self) -> Iterator[Connection]:
        """What the laws write by themselves: nothing dies in it."""
        with self._store.writing() as db:
            yield db
        self._note()

    def _note(self) -> None:
        self.states.append(digest(self.raw))
        self._power.acknowledged = len(self.states)

    def reading(self) -> AbstractContextManager[Connection]:
        return self._store.reading()

    def close(self) -> None:
        self.raw.close()
        self._store.close()


class _OnFiles(Simulation):
    def __init__(self, disk: FileDisk) -> None:
        self.disk, self.other = disk, Disk()
        self.journal = journal_on(disk, CLUSTER)


def digest(db: sqlite3.Connection) -> str:
    """What a journal holds."""
    held = hashlib.sha256()
    for table in TABLES:
        held.update(repr(db.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()).encode())
    return held.hexdigest()


def run(cuts: int, seed: int) -> Result:
    """Cut the power `cuts` times. Raises `OSError` where this Python's SQLite cannot be watched."""
    lost: list[str] = []
    done = states = 0
    while done < cuts:
        with tempfile.TemporaryDirectory(prefix="perdure-power-") as name:
            found, power, kept = _one_service(Path(name), seed, min(cuts - done, MOST_OF_ONE))
            for number, cut in enumerate(power.cuts):
                what = _loss(cut, kept, Path(name), starts=number % STARTS_EACH == 0)
                lost += [f"seed {seed}, cut {number}: {what}"] if what else []
            lost += [f"seed {seed}: {found}"] if found else []
            if found and not power.cuts:
                break  # it did not get as far as a cut, nor would the next
            done, states, seed = done + len(power.cuts), states + len(kept), seed + 1
    return Result(done, states, tuple(lost))


def _one_service(root: Path, seed: int, most: int) -> tuple[str, PowerSupply, list[str]]:
    """What the laws say of its life, the cuts, and the states that it acknowledged."""
    power = PowerSupply(Random(seed), most)
    with power.on(), closing(FileDisk(root, power)) as disk:
        power.share = SHARE
        told = _OnFiles(disk).run(seed)
        power.share = 0.0
    return told.broken, power, disk.states


def _loss(cut: Cut, states: list[str], root: Path, *, starts: bool) -> str:
    """What is wrong with a journal after a cut; "" where nothing is."""
    allowed = states[cut.acknowledged - 1 : cut.acknowledged + 1]
    with tempfile.TemporaryDirectory(dir=root) as name:
        for path, content in cut.files.items():
            (Path(name) / Path(path).name).write_bytes(content)
        try:
            with closing(sqlite3.connect(Path(name) / store.FILE_NAME, isolation_level=None)) as db:
                held = digest(db)
            if starts:
                with closing(Journal.open(name, CLUSTER)) as journal:
                    journal.restore()
        except (sqlite3.DatabaseError, StateError) as err:
            return f"the journal cannot be read: {err}"
    if held in allowed:
        return ""
    return f"state {states.index(held)} of {cut.acknowledged}" if held in states else "a state that never was"
