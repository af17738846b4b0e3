"""How large the journal gets, what pruning gives back, and how long a backup takes.

    python -m benchmarks.journal_size [--jobs 100000] [--directory DIR]

Each job is seen waiting, running and ended, as by a service that looks often. One in four fails, is judged and decided;
what is retried runs once more and ends well. Everything goes through the real controller.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from benchmarks.fill import AT_ONCE, CLUSTER, LOGS, NODES, SPACING_S, START_S
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.observation import Known, Observation
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Ended, Event, Judged, Looked
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import ActionState, Journal
from perdure.triage.judge import judge

MIB = 2**20
RUN_S = 3600.0


@dataclass
class Site:
    """A journal, the controller before it, and the jobs that it sees now."""

    journal: Journal
    state: ControllerState
    now: float = START_S

    def take(self, *events: Event) -> None:
        before = self.state
        effects = []
        for event in events:
            self.state, more = step(self.state, event, ControllerSettings())
            effects += more
        self.journal.record(effects, before, self.state)

    def look(self, jobs: list[Job], attempts: list[Attempt]) -> None:
        self.now += 60.0
        self.take(Looked(Observation(CLUSTER, self.now, tuple(jobs), tuple(attempts), NODES)))

    def forget(self) -> None:
        """What was settled long ago is remembered by nobody."""
        before, self.state = self.state, ControllerState(CLUSTER, Known(nodes=self.state.known.nodes))
        self.journal.record([], before, self.state)


def live(site: Site, numbers: range) -> None:
    """Let jobs come, run and end; a part of them twice."""
    jobs = [_job(number, site.now) for number in numbers]
    site.look(jobs, [])
    first = _run(site, jobs, 1, fails=lambda job: int(job.job_id) % 4 == 0)
    for attempt in first:
        if attempt.state.is_failure:
            log = LOGS[int(attempt.id.job_id) // 4 % len(LOGS)]
            site.take(Judged(site.now, attempt.id, judge(log, attempt)))
    retried = set(_carry_out(site))
    again = [replace(job, state=JobState.PENDING) for job in jobs if job.job_id in retried]
    site.look(again, [])
    _run(site, again, 2, fails=lambda job: False)
    site.forget()
    site.now += SPACING_S * len(jobs)


def _job(number: int, now: float) -> Job:
    name, user = f"train-{number % 97}", f"user{number % 50}"
    return Job(CLUSTER, str(number), name, user, JobState.PENDING, now, "gpu", 8, walltime_s=86400.0)


def _run(site: Site, jobs: list[Job], incarnation: int, fails) -> list[Attempt]:  # type: ignore[no-untyped-def]
    running = [
        Attempt(
            AttemptId(CLUSTER, job.job_id, incarnation), AttemptState.RUNNING, (NODES[int(job.job_id) % 500].name,),
            site.now, gpus=8, user=job.user, stdout=f"/home/{job.user}/train-{job.job_id}.log",
        )
        for job in jobs
    ]  # fmt: skip
    site.look([replace(job, state=JobState.RUNNING) for job in jobs], running)
    site.now += RUN_S
    ended = [
        replace(
            attempt, state=AttemptState.FAILED if fails(job) else AttemptState.COMPLETED, end_s=site.now,
            exit_code=int(fails(job)),
        )
        for job, attempt in zip(jobs, running, strict=True)
    ]  # fmt: skip
    over = [replace(job, state=JobState.FAILED if fails(job) else JobState.COMPLETED) for job in jobs]
    site.look(over, ended)
    return ended


def _carry_out(site: Site) -> Iterator[str]:
    """Carry out what is planned; the jobs that were put back."""
    for row in site.journal.planned():
        site.journal.begin(row.key, site.now)
        begun = site.journal.action(row.key)
        assert begun is not None
        ended = site.journal.finish(begun, ActionState.DONE, "requeued", site.now)
        if isinstance(ended, ActionEnded):
            site.take(Ended((ended,)))
        if row.action.kind == "requeue" and row.attempt:
            yield row.attempt.job_id


def measure(directory: Path, jobs: int) -> None:
    began = time.perf_counter()
    site = Site(Journal.open(directory, CLUSTER), ControllerState(CLUSTER))
    for start in range(0, jobs, AT_ONCE):
        live(site, range(start, min(start + AT_ONCE, jobs)))
    print(f"{jobs} jobs written in {time.perf_counter() - began:.0f} s")
    database = directory / "journal.db"
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        tables = ("events", "jobs", "attempts", "exceptions", "actions", "cases", "memory")
        for table in tables:
            print(f"  {table}: {db.execute(f'SELECT count(*) FROM {table}').fetchone()[0]} rows")
    print(f"journal: {_mib(database)} MiB")
    began = time.perf_counter()
    with sqlite3.connect(database) as db:
        db.execute("VACUUM INTO ?", (str(directory / "copy.db"),))
    print(f"backup: {_mib(directory / 'copy.db')} MiB in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    gone = 0
    while more := site.journal.prune(site.now + 60 * 86400.0):
        gone += more
    site.journal.close()
    print(f"pruned: {gone} rows in {time.perf_counter() - began:.1f} s")
    with sqlite3.connect(database) as db:
        (free,), (size,) = db.execute("PRAGMA freelist_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
        print(f"of the file free for new rows: {free * size / MIB:.0f} of {_mib(database)} MiB")
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    print(f"after VACUUM: {_mib(database)} MiB")


def _mib(path: Path) -> str:
    return f"{path.stat().st_size / MIB:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        measure(Path(directory), given.jobs)


if __name__ == "__main__":
    main()
