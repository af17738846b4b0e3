"""What learning costs a service, and what hostile viewers get by 500 words: the journal, a training round, verdicts.

    python -m benchmarks.learning_cost [--jobs 2000] [--words 500] [--directory DIR]

Jobs of 30 users fail with ten messages of a site's own, through the real controller, judge and journal. What the
verdict lets run again passes or fails alike on another node, as its kind does by nature.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from benchmarks.fill import CLUSTER, NODES, START_S
from benchmarks.site_learning import USERS, Kind, kinds
from perdure.model.events import ActionEnded, AttemptEnded, AttemptStarted, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.observation import Known, Observation
from perdure.model.output import Output
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Effect, Ended, Event, Journalled, Judge, Judged, Looked
from perdure.service.core.settings import ControllerSettings
from perdure.service.learning.learner import Learner
from perdure.service.learning.outcome_store import Aside
from perdure.service.learning.training_store import Read, TrainingStore
from perdure.service.store.journal import ActionState, Journal
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import examine
from perdure.triage.verdict import Label

MIB = 2**20
RUN_S = 900.0
KINDS = 10
AT_ONCE = 20  # jobs between two looks


class Site:
    """A journal, the controller before it, and its learner."""

    def __init__(self, directory: Path) -> None:
        self.journal = Journal.open(directory, CLUSTER)
        self.state, self.now = ControllerState(CLUSTER), START_S
        self.learner = Learner(TrainingStore(self.journal.store, CLUSTER), own_rules(), lambda: self.now)
        some = kinds(2 * KINDS, np.random.default_rng(1))[1::2]  # but those whose line varies
        self.kinds = [Kind(kind.number, kind.text, n % 2 == 0) for n, kind in enumerate(some)]
        self.logs: dict[AttemptId, bytes] = {}

    def take(self, event: Event) -> None:
        before = self.state
        self.state, effects = step(before, event, ControllerSettings())
        self.journal.record(effects, before, self.state)
        for effect in effects:
            if isinstance(effect, Judge):
                verdict = self.learner.judge(Output.of(self.logs[effect.attempt.id]), effect.attempt, Context())
                self.take(Judged(self.now, effect.attempt.id, verdict))

    def run(self, jobs: list[Job], number: int, passes: bool) -> set[str]:
        """Run jobs once; the ids of those that are put back. `passes`: what passes by nature passes now."""
        begun = [
            Attempt(AttemptId(CLUSTER, job.job_id, number), AttemptState.RUNNING, (_node(job, number),), self.now,
                    gpus=8, user=job.user)
            for job in jobs
        ]  # fmt: skip
        self.look([replace(job, state=JobState.RUNNING) for job in jobs], begun)
        self.now += RUN_S
        ended, over = [], []
        for job, attempt in zip(jobs, begun, strict=True):
            good = passes and self.kinds[int(job.job_id) % KINDS].passes
            self.logs[attempt.id] = self.log_of(int(job.job_id))
            state = AttemptState.COMPLETED if good else AttemptState.FAILED
            ended.append(replace(attempt, state=state, end_s=self.now, exit_code=int(not good)))
            over.append(replace(job, state=JobState.COMPLETED if good else JobState.FAILED))
        self.look(over, ended)
        return set(self._carry_out())

    def log_of(self, number: int) -> bytes:
        """A log of some hundred lines, other figures in each, that ends as its kind does."""
        rng = np.random.default_rng(number)
        lines = [f"epoch 1 step {at} loss {rng.random():.5f} lr 0.0003 {rng.random():.3f} s" for at in range(300)]
        return "\n".join(lines).encode() + b"\n" + self.kinds[number % KINDS].log(number)

    def look(self, jobs: list[Job], attempts: list[Attempt]) -> None:
        self.now += 60.0
        self.take(Looked(Observation(CLUSTER, self.now, tuple(jobs), tuple(attempts), NODES)))

    def _carry_out(self) -> Iterator[str]:
        for row in self.journal.planned():
            self.journal.begin(row.key, self.now)
            begun = self.journal.action(row.key)
            assert begun is not None
            ended = self.journal.finish(begun, ActionState.DONE, "requeued", self.now)
            if isinstance(ended, ActionEnded):
                self.take(Ended((ended,)))
            if row.action.kind == "requeue" and row.attempt:
                yield row.attempt.job_id

    def live(self, count: int, rng: np.random.Generator) -> None:
        """Let jobs fail, and those that are put back run once more."""
        for start in range(1, count + 1, AT_ONCE):
            jobs = [self.new_job(n, rng) for n in range(start, min(count, start + AT_ONCE - 1) + 1)]
            self.look(jobs, [])
            put_back = self.run(jobs, 1, passes=False)
            again = [job for job in jobs if job.job_id in put_back]
            self.look(again, [])
            self.run(again, 2, passes=True)
            before, self.state = self.state, ControllerState(CLUSTER, Known(nodes=self.state.known.nodes))
            self.journal.record([], before, self.state)  # as what was settled long ago

    def new_job(self, number: int, rng: np.random.Generator) -> Job:
        """A job of one of the users, some of whom run much."""
        user = f"u{int(USERS * rng.random() ** 2)}"
        return Job(
            CLUSTER, str(number), f"train-{number % 97}", user, JobState.PENDING, self.now, "gpu", 8, walltime_s=86400.0
        )

    def labels(self) -> list[Label]:
        """What a user without any outcomes would be told of each kind; nothing of it is kept."""
        told = []
        for n in range(KINDS):
            over = Attempt(
                AttemptId(CLUSTER, "look", 1), AttemptState.FAILED, ("n1",), 0.0, 90.0, exit_code=3, user="zoe"
            )
            told.append(self.learner.judge(Output.of(self.log_of(n)), over, Context()).label)
        return told

    def say(self, words: int, hostile: tuple[str, ...]) -> None:
        """Hostile viewers call each failure of theirs the opposite of what it is called."""
        before = self.labels()
        over = Attempt(AttemptId(CLUSTER, "1", 1), AttemptState.FAILED, ("n9",), 0.0, 90.0, exit_code=3)
        found = [examine(self.log_of(n), over) for n in range(KINDS)]
        for n in range(words):
            for user in hostile:
                which = replace(over, id=AttemptId(CLUSTER, f"{user}{n}", 1), user=user)
                self.learner.store.keep(Read.of(which, found[n % KINDS], self.now))
                self.learner.store.correct(which.id, before[n % KINDS] is not Label.TRANSIENT, user, False, self.now)
        self.learner = Learner(self.learner.store, own_rules(), lambda: self.now)


def write_ends(directory: Path, jobs: int) -> float:
    """MB of a journal that has of each job, run twice, its states, ends and verdicts, and no more."""
    site, rng = Site(directory), np.random.default_rng(1)
    for n in range(1, jobs + 1):
        job = site.new_job(n, rng)
        told: list[Effect] = [Journalled(JobChanged(0.0, job))]
        for number in (1, 2):
            good = number == 2 and site.kinds[n % KINDS].passes
            begun = Attempt(
                AttemptId(CLUSTER, job.job_id, number),
                AttemptState.RUNNING,
                (f"n{number}",),
                RUN_S * number,
                user=job.user,
            )
            state = AttemptState.COMPLETED if good else AttemptState.FAILED
            over = replace(begun, state=state, end_s=RUN_S * (number + 0.5), exit_code=int(not good))
            told += [
                Journalled(AttemptStarted(begun.start_s or 0.0, begun)),
                Journalled(AttemptEnded(over.end_s or 0.0, over)),
            ]
            if not good:
                verdict = site.learner.judge(Output.of(site.log_of(n)), over, Context())
                told.append(Journalled(Judged(over.end_s or 0.0, over.id, verdict)))
            site.journal.record(told, site.state, site.state)
            told = []
    site.journal.close()
    return (directory / "journal.db").stat().st_size / 1e6


def _node(job: Job, number: int) -> str:
    return NODES[(int(job.job_id) * 7 + number) % len(NODES)].name


def measure(directory: Path, jobs: int, words: int) -> None:
    site = Site(directory)
    began = time.process_time()
    site.live(jobs, np.random.default_rng(1))
    print(f"{jobs} jobs failed, were judged and tried again in {time.process_time() - began:.0f} CPU s")
    with sqlite3.connect(directory / "journal.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _sizes(db)
    print(f"journal: {(directory / 'journal.db').stat().st_size / 1e6:.1f} MB")
    before = site.labels()
    site.learner.store.note_outcomes()
    outcomes = len(site.learner.store.outcomes.newest())
    began = time.process_time()
    site.learner.learn(anyway=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"a round on {outcomes} outcomes: {time.process_time() - began:.1f} CPU s, {peak:.0f} MB at most in all")
    right = sum(
        label is (Label.TRANSIENT if kind.passes else Label.DETERMINISTIC)
        for label, kind in zip(site.labels(), site.kinds, strict=True)
    )
    print(f"rightly decided for a user who saw none of them: {right} of {KINDS} kinds")
    for hostile in (("eve",), ("eve", "mallory")):
        site.say(words, hostile)
        site.learner.turn()
        moved = sum(was is not now for was, now in zip(before, site.labels(), strict=True))
        print(f"{words} words of each of {len(hostile)} hostile viewers: {moved} verdicts of others move")
        for user in hostile:
            site.learner.put_aside(Aside.USER, user, "root")
            site.learner.approve(Aside.USER, user, "root")
    site.journal.close()


def _sizes(db: sqlite3.Connection) -> None:
    """Of each table, with its indices, how much room it takes."""
    query = (
        "SELECT m.tbl_name, sum(s.pgsize), sum(s.pgsize * (m.type = 'index')) FROM dbstat s JOIN sqlite_master m"
        " ON m.name = s.name GROUP BY 1 ORDER BY 2 DESC LIMIT 12"
    )
    try:
        rows = db.execute(query).fetchall()
    except sqlite3.OperationalError:  # built without dbstat
        return
    for name, size, indices in rows:
        count = db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
        print(f"  {name}: {count} rows, {size / 1e6:.2f} MB, {indices / 1e6:.2f} of them indices")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--words", type=int, default=500)
    parser.add_argument("--directory", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        print(f"journal of ends and verdicts alone: {write_ends(Path(directory), asked.jobs):.1f} MB")
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        measure(Path(directory), asked.jobs, asked.words)


if __name__ == "__main__":
    main()
