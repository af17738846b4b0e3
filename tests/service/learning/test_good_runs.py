"""Good runs in the service: read when nothing else waits, kept for the same job, and held against its failures."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from perdure.model.events import JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.observation import Observation
from perdure.model.output import Absent, LogMark, Output, Why
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Journalled, Looked, Study
from perdure.service.core.settings import ControllerSettings
from perdure.service.learning import good_runs as module
from perdure.service.learning.good_runs import GoodRuns
from perdure.service.learning.learner import Learner
from perdure.service.learning.training_store import TrainingStore
from perdure.service.store.journal import Journal
from perdure.service.store.schema import good_runs as table
from perdure.service.workers import good_run_queue
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.service.workers.good_run_queue import GoodRunQueue
from perdure.triage.evidence.context import Context
from perdure.triage.evidence.goodrun import GoodRun
from perdure.triage.evidence.rules import own_rules
from perdure.triage.text.logtext import LogText
from perdure.triage.verdict import Label
from tests.copying import replace

HABIT = b"ImportError: cannot import name 'foo' from 'bar'\n"
GOOD_LOG = b"loading\n" + HABIT + b"saved\n"
BAD_LOG = b"loading\n" + HABIT + b"ConnectionResetError: [Errno 104] Connection reset by peer\n"
GOOD = GoodRun.of(LogText.of(GOOD_LOG))
DONE = Attempt(AttemptId("c", "1", 1), AttemptState.COMPLETED, ("n1",), 10.0, 20.0, user="ada")
JOB = Job("c", "1", "train", "ada", JobState.COMPLETED, 0.0)


@pytest.fixture
def good_runs(journal: Journal) -> GoodRuns:
    return GoodRuns(journal.store, "c")


@pytest.fixture
def learner(journal: Journal, good_runs: GoodRuns) -> Learner:
    return Learner(TrainingStore(journal.store, "c"), own_rules(), lambda: 7000.0, good_runs)


def known(journal: Journal, job: Job) -> Attempt:
    """Write a job down, and return an attempt of it that failed."""
    journal.record([Journalled(JobChanged(0.0, job))], ControllerState("c"), ControllerState("c"))
    return Attempt(AttemptId("c", job.job_id, 1), AttemptState.FAILED, ("n1",), 0.0, 9.0, exit_code=1, user=job.user)


def test_a_habit_of_good_runs_misleads_no_verdict(journal: Journal, learner: Learner) -> None:
    failed = known(journal, replace(JOB, job_id="2"))
    assert learner.judge(Output.of(BAD_LOG), failed, Context()).label is Label.DETERMINISTIC
    learner.study(Output.of(GOOD_LOG), JOB)
    verdict = learner.judge(Output.of(BAD_LOG), failed, Context())
    assert (verdict.label, verdict.category) == (Label.TRANSIENT, "net")


@pytest.mark.parametrize("other", [{"user": "eve"}, {"name": "eval"}])
def test_other_users_and_other_names_are_other_jobs(journal: Journal, learner: Learner, other: dict[str, Any]) -> None:
    learner.study(Output.of(GOOD_LOG), JOB)
    failed = known(journal, replace(JOB, job_id="2", **other))
    assert learner.judge(Output.of(BAD_LOG), failed, Context()).label is Label.DETERMINISTIC


def test_a_job_that_is_not_known_or_has_no_name_has_no_good_run(journal: Journal, good_runs: GoodRuns) -> None:
    assert good_runs.of(AttemptId("c", "9", 1)) is None
    assert not good_runs.keep("ada", "", GOOD, 1.0)
    assert good_runs.of(known(journal, replace(JOB, name="")).id) is None


@pytest.mark.parametrize("name", ["a\0b", "\ud800x", "'; drop table jobs; --", "\N{PILE OF POO}", "n" * 100_000])
def test_a_name_may_be_anything(journal: Journal, good_runs: GoodRuns, name: str) -> None:
    assert good_runs.keep("ada", name, GOOD, 1.0)
    found = good_runs.of(known(journal, replace(JOB, name=name)).id)
    assert found.save() == GOOD.save()


def test_the_last_good_run_counts(journal: Journal, good_runs: GoodRuns) -> None:
    failed = known(journal, JOB)
    for line in (b"one\n", b"two\n"):
        good_runs.keep("ada", "train", GoodRun.of(LogText.of(line)), 1.0)
    found = good_runs.of(failed.id)
    assert (found.knows(b"one"), found.knows(b"two")) == (False, True)


def test_few_are_kept_and_the_oldest_go_first(
    journal: Journal, good_runs: GoodRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_GOOD_RUNS", 2)
    for now, name in enumerate(("a", "b", "a", "c")):
        good_runs.keep("ada", name, GOOD, float(now))
    found = [good_runs.of(known(journal, replace(JOB, job_id=name, name=name)).id) for name in "abc"]
    assert [one is not None for one in found] == [True, False, True]


def test_one_that_is_too_large_leaves_the_one_before_it(
    journal: Journal, good_runs: GoodRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_runs.keep("ada", "train", GOOD, 1.0)
    monkeypatch.setattr(module, "MAX_STATE_BYTES", 10)
    assert not good_runs.keep("ada", "train", GoodRun.of(LogText.of(b"other\n")), 2.0)
    assert good_runs.of(known(journal, JOB).id).save() == GOOD.save()


def test_a_damaged_one_leaves_no_failure_without_an_answer(
    journal: Journal, learner: Learner, caplog: pytest.LogCaptureFixture
) -> None:
    learner.study(Output.of(GOOD_LOG), JOB)
    with journal.store.writing() as db:
        db.execute(update(table).values(state=b"garbage"))
    assert learner.judge(Output.of(BAD_LOG), known(journal, JOB), Context()).label is Label.DETERMINISTIC
    assert "judged without its job's good run" in caplog.text


# -- when a log is read


def studied(*looks: tuple[Attempt], settings: ControllerSettings | None = None, job: Job = JOB) -> list[Study]:
    """What a controller wants to have studied, after looks that each show attempts of `job`."""
    state, found = ControllerState("c"), []
    for now, attempts in enumerate(looks, 100):
        seen = Observation("c", float(now), (job,), attempts)
        state, effects = step(state, Looked(seen), settings or ControllerSettings())
        found += [effect for effect in effects if isinstance(effect, Study)]
    return found


def test_a_run_that_went_well_is_studied_once() -> None:
    assert studied((DONE,), (DONE,)) == [Study(DONE, JOB)]


@pytest.mark.parametrize("state", [state for state in AttemptState if state is not AttemptState.COMPLETED])
def test_nothing_else_is(state: object) -> None:
    assert studied((replace(DONE, state=state),)) == []


def test_a_job_that_failed_before_has_the_failure_in_its_log() -> None:
    again = replace(DONE, id=AttemptId("c", "1", 2), start_s=30.0, end_s=40.0)
    assert studied((replace(DONE, state=AttemptState.FAILED, exit_code=1),), (again,)) == []


def test_a_job_that_was_put_back_before_may_have_it_there_too() -> None:
    assert studied((DONE,), job=replace(JOB, restarts=1)) == []


def test_what_ended_before_we_came_is_none_of_our_business() -> None:
    assert studied((DONE,), settings=ControllerSettings(ignore_before_s=21.0)) == []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(1, 9)), max_size=30))
def test_the_latest_of_each_job_waits(puts: list[Any]) -> None:
    waiting, latest = GoodRunQueue(), {}
    for user, name, number in puts:
        job = replace(JOB, user=user, name=name)
        attempt = replace(DONE, id=AttemptId("c", "1", number))
        waiting.put(attempt, job)
        latest[user, name] = (attempt, job)
    assert list(iter(waiting.take, None)) == list(latest.values())


def test_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(good_run_queue, "MAX_WAITING", 2)
    waiting = GoodRunQueue()
    for name in "abc":
        waiting.put(DONE, replace(JOB, name=name))
    assert [job.name for _, job in iter(waiting.take, None)] == ["b", "c"]


class Shelf:
    """A backend that shows one look after the other, and of which only logs are asked beside."""

    cluster = "c"

    def __init__(self, *looks: Observation) -> None:
        self._looks, self.logs, self.read = list(looks), {"1": GOOD_LOG, "2": BAD_LOG}, []

    def observe(self, since_s: Any) -> Observation:
        return self._looks.pop(0)

    def output(self, attempt: Attempt, max_bytes: int, known: Sequence[LogMark] = ()) -> Output:
        self.read.append(attempt.id.job_id)
        if attempt.id.job_id not in self.logs:
            return Output((), (Absent("log", Why.MISSING, "it is not there"),))
        return Output.of(self.logs[attempt.id.job_id])

    def close(self) -> None:
        pass


@pytest.fixture
def engine_over(journal: Journal, learner: Learner, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    engines = []

    def make(backend: Any, student: Callable[[Output, Job], None] = learner.study) -> Engine:
        executor = Executor(journal, backend, ExecutorSettings(False, tmp_path / "STOP"))
        settings = ControllerSettings()
        engines.append(Engine(backend, journal, executor, learner.judge, settings, lambda: 0.0, student=student))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


FAILED = replace(DONE, id=AttemptId("c", "2", 1), state=AttemptState.FAILED, exit_code=1)
BOTH = Observation("c", 100.0, (JOB, replace(JOB, job_id="2", state=JobState.FAILED)), (DONE, FAILED))


def verdict_on(engine: Engine, job_id: str) -> Any:
    return engine.state.cases[job_id].failure.verdict.label


def test_failures_are_judged_before_good_runs_are_read(engine_over: Callable[..., Engine]) -> None:
    shelf = Shelf(BOTH)
    engine = engine_over(shelf)
    engine.look()
    assert shelf.read == []
    assert [engine.judge_next(0.01) for _ in range(3)] == [True, False, False]
    assert shelf.read == ["2", "1"]
    assert verdict_on(engine, "2") is Label.DETERMINISTIC  # it came before the good run was known


def test_a_later_failure_is_held_against_the_good_run(engine_over: Callable[..., Engine]) -> None:
    engine = engine_over(Shelf(replace(BOTH, attempts=(DONE,)), replace(BOTH, time_s=101.0)))
    engine.look()
    assert not engine.judge_next(0.01)
    engine.look()
    assert engine.judge_next(1.0)
    assert verdict_on(engine, "2") is Label.TRANSIENT


def test_where_nobody_asks_no_good_log_is_read(engine_over: Callable[..., Engine]) -> None:
    shelf = Shelf(replace(BOTH, attempts=(DONE,)))
    engine = engine_over(shelf, student=None)
    engine.look()
    assert not engine.judge_next(0.01)
    assert shelf.read == []


def test_a_good_log_that_is_gone_is_passed_over(engine_over: Callable[..., Engine]) -> None:
    shelf = Shelf(replace(BOTH, attempts=(DONE,)))
    del shelf.logs["1"]
    engine = engine_over(shelf)
    engine.look()
    assert not engine.judge_next(0.01)
    assert not engine.judge_next(0.01)
    assert shelf.read == ["1"]


def test_of_each_cluster_the_newest_are_kept_and_no_other_ones_count(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_GOOD_RUNS", 3)
    for cluster, at in (("c", 0.0), ("d", 100.0), ("c", 10.0)):
        for number in range(5):
            GoodRuns(journal.store, cluster).keep("ada", f"job-{number}", GOOD, at + number)
    with journal.engine.connect() as db:
        kept = db.execute(select(table.c.cluster, table.c.time_s).order_by(table.c.cluster, table.c.time_s)).all()
    assert [tuple(row) for row in kept] == [
        ("c", 12.0),
        ("c", 13.0),
        ("c", 14.0),
        ("d", 102.0),
        ("d", 103.0),
        ("d", 104.0),
    ]
