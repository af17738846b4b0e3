"""The embedded cluster's memory: every record as one JSON document in SQLite, safe against ``kill -9`` at any point."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from perdure.backends.local.core import CoreStep
from perdure.backends.local.records import AttemptRecord, LocalJob, LocalNode
from perdure.backends.local.wire import decode, encode
from perdure.errors import StateError
from perdure.model.actions import Outcome

T = TypeVar("T", bound=Struct)

FORMAT = 1
MAX_ENDED_JOBS = 10_000
MAX_ACTIONS = 100_000
TRY_AGAIN_S = 0.2
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)  # the disk is full; so is a quota, or the file may not grow

_SCHEMA = """
CREATE TABLE node (name TEXT PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE job (id INTEGER PRIMARY KEY, end_s REAL, record TEXT NOT NULL);
CREATE INDEX job_end ON job (end_s);
CREATE TABLE attempt (
    job INTEGER NOT NULL, incarnation INTEGER NOT NULL, end_s REAL, record TEXT NOT NULL,
    PRIMARY KEY (job, incarnation)
);
CREATE INDEX attempt_end ON attempt (end_s);
CREATE TABLE process (pid INTEGER NOT NULL, born TEXT NOT NULL, label TEXT NOT NULL, PRIMARY KEY (pid, born));
CREATE TABLE action (seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, outcome TEXT NOT NULL);
CREATE TABLE counter (next_job INTEGER NOT NULL);
INSERT INTO counter VALUES (1);
"""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that was started, known by its number and the instant of its birth."""

    pid: int
    born: str
    label: str  # ``job#incarnation.rank``, for people


class LocalStore:
    """One SQLite file. A write waits for room on a full disk; one that fails otherwise is final.

    Then the caller must stop, for memory and disk no longer agree.
    """

    def __init__(self, path: Path, gives_up: Callable[[], bool] = lambda: True) -> None:
        """Open or make the file. Raises `StateError` where it is of another format or cannot be used.

        `gives_up` is asked again and again while the disk is full.
        """
        self._gives_up = gives_up
        try:
            path.touch(mode=0o600)  # records hold environments
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._prepare(path)
        except (sqlite3.Error, OSError) as err:
            raise StateError(str(path), f"cannot be used: {err}", "Move it away or name another --state") from err

    def _prepare(self, path: Path) -> None:
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found == 0:
            self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={FORMAT}; COMMIT;")
        elif found != FORMAT:
            what = f"has format {found}, this version of Perdure reads {FORMAT}"
            raise StateError(str(path), what, "Use the version that wrote it or name another --state")

    def close(self) -> None:
        self._db.close()

    def nodes(self) -> list[LocalNode]:
        return [_read(LocalNode, row) for row in self._db.execute("SELECT record FROM node ORDER BY rowid")]

    def jobs(self) -> list[LocalJob]:
        return [_read(LocalJob, row) for row in self._db.execute("SELECT record FROM job ORDER BY id")]

    def running(self) -> list[AttemptRecord]:
        return [_read(AttemptRecord, row) for row in self._db.execute("SELECT record FROM attempt WHERE end_s IS NULL")]

    def ended_since(self, since_s: float) -> list[AttemptRecord]:
        rows = self._db.execute("SELECT record FROM attempt WHERE end_s >= ? ORDER BY end_s", (since_s,))
        return [_read(AttemptRecord, row) for row in rows]

    def attempt(self, job_id: str, incarnation: int) -> AttemptRecord | None:
        row = self._db.execute(
            "SELECT record FROM attempt WHERE job = ? AND incarnation = ?", (int(job_id), incarnation)
        ).fetchone()
        return None if row is None else _read(AttemptRecord, row)

    def next_job(self) -> int:
        return int(self._db.execute("SELECT next_job FROM counter").fetchone()[0])

    def leftovers(self) -> list[Leftover]:
        return [Leftover(*row) for row in self._db.execute("SELECT pid, born, label FROM process")]

    def outcome(self, key: str) -> Outcome | None:
        """The result of the action of this key; None where it was never carried out."""
        row = self._db.execute("SELECT outcome FROM action WHERE key = ?", (key,)).fetchone()
        return None if row is None else decode(Outcome, json.loads(row[0]))

    def save(self, step: CoreStep, action: tuple[str, Outcome] | None = None) -> None:
        """Write all that changed, and the action that changed it, or nothing."""
        if not (step.jobs or step.attempts or step.nodes or action):
            return

        def write() -> None:
            self._db.executemany(
                "INSERT INTO node VALUES (?, ?) ON CONFLICT DO UPDATE SET record = excluded.record",
                [(node.name, _text(node)) for node in step.nodes],
            )
            self._db.executemany(
                "INSERT INTO job VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET end_s = excluded.end_s, record = excluded.record",
                [(int(job.job_id), job.end_s, _text(job)) for job in step.jobs],
            )
            self._db.executemany(
                "INSERT INTO attempt VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET end_s = excluded.end_s, record = excluded.record",
                [(int(a.job_id), a.incarnation, a.end_s, _text(a)) for a in step.attempts],
            )
            self._db.execute(
                "UPDATE counter SET next_job = max(next_job, ?)",
                (max((int(job.job_id) for job in step.jobs), default=0) + 1,),
            )
            if action is not None:
                self._db.execute("INSERT INTO action (key, outcome) VALUES (?, ?)", (action[0], _text(action[1])))

        self._write(write)

    def add_processes(self, processes: Iterable[Leftover]) -> None:
        rows = [(p.pid, p.born, p.label) for p in processes]
        self._write(lambda: self._db.executemany("INSERT INTO process VALUES (?, ?, ?)", rows))

    def remove_processes(self, processes: Iterable[tuple[int, str]]) -> None:
        rows = list(processes)
        self._write(lambda: self._db.executemany("DELETE FROM process WHERE pid = ? AND born = ?", rows))

    def keep_nodes(self, names: Iterable[str]) -> None:
        """Drop nodes that the cluster no longer has."""
        kept = list(names)

        def write() -> None:
            for (name,) in self._db.execute("SELECT name FROM node").fetchall():
                if name not in kept:
                    self._db.execute("DELETE FROM node WHERE name = ?", (name,))

        self._write(write)

    def prune(self) -> tuple[list[str], list[str]]:
        """Drop the oldest ended jobs and actions beyond the bounds; returns the jobs' ids and their logs."""
        old = self._db.execute(
            "SELECT id FROM job WHERE end_s IS NOT NULL ORDER BY end_s DESC LIMIT -1 OFFSET ?", (MAX_ENDED_JOBS,)
        ).fetchall()
        logs: list[str] = []

        def write() -> None:
            logs.clear()
            for (job,) in old:
                rows = self._db.execute("SELECT record FROM attempt WHERE job = ?", (job,)).fetchall()
                logs.extend(_read(AttemptRecord, row).log for row in rows)
                self._db.execute("DELETE FROM attempt WHERE job = ?", (job,))
                self._db.execute("DELETE FROM job WHERE id = ?", (job,))
            self._db.execute("DELETE FROM action WHERE seq <= (SELECT max(seq) FROM action) - ?", (MAX_ACTIONS,))

        self._write(write)
        return [str(job) for (job,) in old], logs

    def _write(self, body: Callable[[], object]) -> None:
        """Do it as one transaction; on a full disk again, until there is room. Raises `sqlite3.Error`."""
        while True:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                body()
                self._db.execute("COMMIT")
                return
            except sqlite3.Error as err:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if getattr(err, "sqlite_errorcode", 0) & 0xFF not in _NO_ROOM or self._gives_up():
                    raise
                time.sleep(TRY_AGAIN_S)


def _text(record: Struct) -> str:
    return json.dumps(encode(record), separators=(",", ":"))


def _read(cls: type[T], row: tuple[str]) -> T:
    return decode(cls, json.loads(row[0]))
