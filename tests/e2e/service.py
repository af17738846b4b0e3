"""The engine with its threads around a real cluster, without the web: what end-to-end tests run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from perdure.backends.protocol import Backend
from perdure.model.identity import AttemptId
from perdure.model.jobs import JobState
from perdure.service.core.settings import ControllerSettings
from perdure.service.learning.good_runs import GoodRuns
from perdure.service.learning.learner import Learner
from perdure.service.learning.training_store import TrainingStore
from perdure.service.store.journal import ActionRow, Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import STOP_FILE, ActionState, Executor, ExecutorSettings
from perdure.service.workers.kept_logs import KeptLogs
from perdure.service.workers.threads import end, threads
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge

PATIENCE_S = 120.0  # for what takes seconds on a quiet machine


class Running:
    """A service at work, and questions to its journal."""

    def __init__(self, engine: Engine, state: Path) -> None:
        self.engine, self.journal, self.state = engine, engine.journal, state

    def actions(self, job_id: str) -> list[ActionRow]:
        rows = self.journal._actions()
        return [row for row in rows if row.attempt and row.attempt.job_id == job_id]

    def exceptions(self, job_id: str) -> list[dict[str, Any]]:
        with self.journal.engine.connect() as db:
            found = db.exec_driver_sql("select * from exceptions where job_id = ? order by seq", (job_id,))
            return [dict(row._mapping) for row in found]

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        query = "select incarnation, state, payload, verdict from attempts where job_id = ? order by incarnation"
        with self.journal.engine.connect() as db:
            return [dict(row._mapping) for row in db.exec_driver_sql(query, (job_id,))]

    def job_state(self, job_id: str) -> str:
        with self.journal.engine.connect() as db:
            return db.exec_driver_sql("select state from jobs where job_id = ?", (job_id,)).scalar() or ""

    def has_good_run(self, job_id: str) -> bool:
        """True once the service knows what a good run of the same job said."""
        good_runs = GoodRuns(self.journal.store, self.journal.cluster)
        return good_runs.of(AttemptId(self.journal.cluster, job_id, 1)) is not None

    def told(self, job_id: str) -> str:
        """What the last look saw of a job and of all nodes, and what the journal holds: for a failed assertion."""
        known = self.engine.state.known
        seen = [known.jobs.get(job_id, "no such job"), *known.nodes.values()]
        unseen = [f"unseen: {part}: {why}" for part, why in known.unseen.items()]
        lines = (*unseen, *seen, *self.attempts(job_id), *self.exceptions(job_id), *self.actions(job_id))
        return "\n".join(("", f"last look at {self.engine.last_look_s}, now {time.time()}", *map(str, lines)))

    def await_job(self, job_id: str, *states: JobState, within_s: float = PATIENCE_S) -> str:
        def now() -> str:
            return self.job_state(job_id)

        await_(lambda: now() in states, within_s, lambda: f"job {job_id} is {now()!r}{self.told(job_id)}")
        return self.job_state(job_id)

    def await_action(self, job_id: str, state: ActionState, within_s: float = PATIENCE_S) -> ActionRow:
        """Wait for the first action on a job that stands so."""

        def found() -> list[ActionRow]:
            return [row for row in self.actions(job_id) if row.state is state]

        await_(lambda: bool(found()), within_s, lambda: f"no action on job {job_id} is {state}{self.told(job_id)}")
        return found()[0]

    def await_exception(self, job_id: str, state: str, within_s: float = PATIENCE_S) -> dict[str, Any]:
        def last() -> str:
            found = self.exceptions(job_id)
            return found[-1]["state"] if found else ""

        def words() -> str:
            return f"job {job_id}: last exception is {last()!r}, not {state!r}{self.told(job_id)}"

        await_(lambda: last() == state, within_s, words)
        return self.exceptions(job_id)[-1]


def await_(condition: Callable[[], bool], within_s: float = PATIENCE_S, words: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {words()}"
        time.sleep(0.05)


def _engine(
    backend: Backend,
    journal: Journal,
    executor_settings: ExecutorSettings,
    settings: ControllerSettings | None,
    learns: bool,
    kept: KeptLogs,
) -> Engine:
    executor, controller = Executor(journal, backend, executor_settings), settings or ControllerSettings()
    if not learns:
        return Engine(backend, journal, executor, judge, controller, time.time, kept=kept)
    good_runs = GoodRuns(journal.store, journal.cluster)
    learner = Learner(TrainingStore(journal.store, journal.cluster), own_rules(), time.time, good_runs)
    return Engine(backend, journal, executor, learner.judge, controller, time.time, student=learner.study, kept=kept)


@contextmanager
def running(
    backend: Backend,
    state: Path,
    *,
    armed: bool = True,
    look_every_s: float = 0.2,
    settings: ControllerSettings | None = None,
    learns: bool = False,
) -> Iterator[Running]:
    """A service over `backend` with its journal in `state`; leaving the block ends it as Ctrl-C does."""
    with (
        closing(Journal.open(state, backend.cluster)) as journal,
        closing(
            _engine(backend, journal, ExecutorSettings(armed, state / STOP_FILE), settings, learns, KeptLogs(state))
        ) as engine,
    ):
        engine.recover()
        stop = threading.Event()
        hands = threads(engine, stop, look_every_s)
        for hand in hands:
            hand.start()
        try:
            yield Running(engine, state)
        finally:
            end(hands, stop, engine)
