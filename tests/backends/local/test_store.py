"""What is on disk: all of a change or nothing, and never more than the bounds."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from perdure.backends.local import store as store_module
from perdure.backends.local.core import CoreStep
from perdure.backends.local.records import AttemptRecord, LocalJob, LocalNode
from perdure.backends.local.spec import JobSpec
from perdure.backends.local.store import Leftover, LocalStore
from perdure.model.actions import Outcome, OutcomeStatus
from perdure.model.jobs import AttemptState, JobState

DONE = Outcome(OutcomeStatus.DONE, "so it was")


def job(number: int, end_s: float | None = None) -> LocalJob:
    return LocalJob(str(number), JobSpec(("true",)), JobState.PENDING, 0.0, 0.0, end_s=end_s)


def attempt(number: int, incarnation: int = 1, end_s: float | None = None) -> AttemptRecord:
    state = AttemptState.RUNNING if end_s is None else AttemptState.FAILED
    return AttemptRecord(str(number), incarnation, state, ("n1",), ((0,),), 0.0, f"/logs/{number}", "ada", end_s)


def step(
    jobs: Sequence[LocalJob] = (), attempts: Sequence[AttemptRecord] = (), nodes: Sequence[LocalNode] = ()
) -> CoreStep:
    return CoreStep(tuple(jobs), tuple(attempts), tuple(nodes), ())


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[LocalStore]:
    made = LocalStore(tmp_path / "db")
    yield made
    made.close()


def test_what_was_saved_is_there_after_reopening(opened: LocalStore, tmp_path: Path) -> None:
    node = LocalNode("n1", 8, 4, 0.0, drained="bad fan")
    attempts = [attempt(1), attempt(2, 1, 9.0), attempt(2, 2, 5.0)]
    opened.save(step([job(1), job(2, 9.0)], attempts, [node]), ("key", DONE))
    opened.add_processes([Leftover(7, "boot:1", "1#1.0")])
    opened.close()
    again = LocalStore(tmp_path / "db")
    assert (again.nodes(), again.jobs(), again.running()) == ([node], [job(1), job(2, 9.0)], [attempt(1)])
    assert again.ended_since(6.0) == [attempt(2, 1, 9.0)]
    assert (again.outcome("key"), again.outcome("other")) == (DONE, None)
    assert (again.next_job(), again.leftovers()) == (3, [Leftover(7, "boot:1", "1#1.0")])
    again.close()


def test_a_change_that_cannot_be_written_whole_is_not_written(opened: LocalStore) -> None:
    opened.save(step(), ("key", DONE))
    with pytest.raises(sqlite3.IntegrityError):
        opened.save(step([job(1)]), ("key", DONE))
    assert opened.jobs() == []


def test_job_numbers_are_never_given_again(opened: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_ENDED_JOBS", 0)
    opened.save(step([job(41, 1.0)]))
    opened.prune()
    assert (opened.jobs(), opened.next_job()) == ([], 42)


def test_the_oldest_that_are_over_are_let_go(opened: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_ENDED_JOBS", 2)
    monkeypatch.setattr(store_module, "MAX_ACTIONS", 3)
    for number in range(1, 6):
        opened.save(step([job(number, float(number))], [attempt(number, 1, float(number))]), (f"key{number}", DONE))
    opened.save(step([job(6)], [attempt(6)]))
    assert opened.prune() == (["3", "2", "1"], ["/logs/3", "/logs/2", "/logs/1"])
    assert [j.job_id for j in opened.jobs()] == ["4", "5", "6"]
    assert [a.job_id for a in opened.ended_since(0.0)] == ["4", "5"]
    assert [opened.outcome(f"key{n}") is not None for n in range(1, 6)] == [False, False, True, True, True]
