"""How many facts a second the journal takes, durably, on one core; beside it what bare SQLite takes.

    python benchmarks/journal.py [--events 40000] [--batch 1000] [--directory DIR]

"journal" writes whole facts about jobs and attempts: each goes to `events`, and over the row of its job or attempt.
"events only" writes facts of cluster parts, which go to `events` alone: the like of the floor, which is `sqlite3` with
`executemany` into one table of the same columns and indexes, with the same pragmas (WAL, synchronous FULL). Rates are
given by wall clock, the disk's syncs included, and by processor time.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perdure.model.events import AttemptEnded, AttemptStarted, ClusterEvent, JobChanged, SightChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.service.core.case import ControllerState
from perdure.service.core.messages import Journalled
from perdure.service.store import rows
from perdure.service.store.journal import Journal

EMPTY = ControllerState("c")
FLOOR = """
CREATE TABLE events (seq INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, time_s REAL NOT NULL, cluster TEXT NOT NULL,
                     kind TEXT NOT NULL, job_id TEXT NOT NULL, payload TEXT NOT NULL);
CREATE INDEX events_by_job ON events (cluster, job_id, seq);
"""
COLUMNS = ("key", "time_s", "cluster", "kind", "job_id", "payload")


def job_facts(count: int) -> Iterator[ClusterEvent]:
    """Jobs that come, start and end: four facts each."""
    for number in range(-(-count // 4)):
        job = Job("c", str(number), f"train-{number}", f"user{number % 50}", JobState.RUNNING, float(number), gpus=8)
        attempt = Attempt(AttemptId("c", str(number), 1), AttemptState.RUNNING, (f"n{number % 99}",), float(number))
        ended = replace(attempt, state=AttemptState.FAILED, end_s=number + 60.0, exit_code=1)
        yield JobChanged(float(number), job)
        yield AttemptStarted(float(number), attempt)
        yield JobChanged(number + 60.0, replace(job, state=JobState.FAILED))
        yield AttemptEnded(number + 60.0, ended, job)


def part_facts(count: int) -> Iterator[ClusterEvent]:
    for number in range(count):
        yield SightChanged(float(number), "c", "accounting", f"no answer within 30 s, for the {number}th time")


def write_journal(directory: Path, facts: Sequence[ClusterEvent], batch: int) -> None:
    journal = Journal.open(directory, "c")
    for start in range(0, len(facts), batch):
        journal.record([Journalled(fact) for fact in facts[start : start + batch]], EMPTY, EMPTY)
    journal.close()


def write_floor(directory: Path, facts: Sequence[ClusterEvent], batch: int) -> None:
    made = rows.rows_of([Journalled(fact) for fact in facts], EMPTY, EMPTY).events
    values = [tuple(row[name] for name in COLUMNS) for row in made]
    db = sqlite3.connect(directory / "floor.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.executescript(FLOOR)
    began = _clocks()
    for start in range(0, len(values), batch):
        db.execute("BEGIN IMMEDIATE")
        insert = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES (?,?,?,?,?,?) ON CONFLICT DO NOTHING"
        db.executemany(insert, values[start : start + batch])
        db.execute("COMMIT")
    _report("bare sqlite3, events only", len(values), began)
    db.close()


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _report(name: str, count: int, began: tuple[float, float]) -> None:
    wall_s, cpu_s = (now - then for now, then in zip(_clocks(), began, strict=True))
    print(f"{name:28} {count / wall_s:10,.0f} events/s  {count / cpu_s:10,.0f} events/s of processor time")


def _timed(name: str, write: Callable[[], None], count: int) -> None:
    began = _clocks()
    write()
    _report(name, count, began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--directory", type=Path, help="on the disk to be measured; a temporary one otherwise")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as name:
        directory = Path(name)
        Journal.open(directory / "a", "c").close()
        Journal.open(directory / "b", "c").close()
        jobs, parts = list(job_facts(given.events)), list(part_facts(given.events))
        _timed("journal, jobs and attempts", lambda: write_journal(directory / "a", jobs, given.batch), len(jobs))
        _timed("journal, events only", lambda: write_journal(directory / "b", parts, given.batch), len(parts))
        write_floor(directory, parts, given.batch)


if __name__ == "__main__":
    main()
