"""A full file system: those who write there are told once, and again once it has room."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.coordination.messages import ExceptionRaised
from perdure.model.actions import Hold, Release
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Observation
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.full_store import ENOUGH, full_now, room_again
from perdure.service.core.messages import PERDURE, Act, ChainInput, Ended, Event, Judged, Looked
from perdure.service.core.settings import ControllerSettings
from perdure.triage.judge import judge
from tests.copying import replace

NODES = tuple(Node(f"n{i}", NodeState.UP) for i in range(1, 5))
NO_SPACE = b"step 10\nOSError: [Errno 28] No space left on device: 'checkpoint.pt'\n"


def job(job_id: str, state: JobState, work_dir: str = "/scratch/ada", user: str = "ada") -> Job:
    return Job("c", job_id, f"job{job_id}", user, state, 0.0, work_dir=work_dir)


class Run:
    """Two jobs on /scratch fail for it is full; one runs and one waits there; others run and wait elsewhere."""

    def __init__(self) -> None:
        self.state, self.effects = ControllerState("c"), []
        running = [("3", "/scratch/bob"), ("4", "/home/bob")]
        waiting = [("5", "/scratch"), ("6", "/scratchier"), ("7", "")]
        self.jobs = {i: job(i, JobState.RUNNING, where) for i, where in running}
        self.jobs |= {i: job(i, JobState.PENDING, where) for i, where in waiting}
        self.attempts = [Attempt(AttemptId("c", i, 1), AttemptState.RUNNING, ("n3",), 1.0) for i, _ in running]
        self.look(5.0)

    def feed(self, event: Event) -> None:
        self.state, effects = step(self.state, event, ControllerSettings())
        self.effects += effects

    def look(self, now: float, *attempts: Attempt) -> None:
        self.feed(Looked(Observation("c", now, tuple(self.jobs.values()), (*self.attempts, *attempts), NODES)))

    def fails(self, job_id: str, now: float, store: str = "/scratch") -> None:
        self.jobs[job_id] = job(job_id, JobState.FAILED)
        failed = Attempt(AttemptId("c", job_id, 1), AttemptState.FAILED, ("n2",), now - 60, now, exit_code=1)
        self.look(now, failed)
        self.feed(Judged(now + 1, failed.id, replace(judge(NO_SPACE, failed), full_store=store)))

    def acts(self, kind: type) -> list[Any]:
        return [e.action.attempt.job_id for e in self.effects if isinstance(e, Act) and isinstance(e.action, kind)]

    def records(self, kind: str) -> list[Any]:
        chain = self.state.chain
        return [record for record in (*chain.open.values(), *chain.ended.values()) if record.type == kind]


@pytest.fixture
def run() -> Run:
    return Run()


def carried_out(run: Run) -> None:
    for effect in [e for e in run.effects if isinstance(e, Act)]:
        action = effect.action
        run.feed(Ended((ActionEnded(20.0, action.key, action.attempt, "done", ""),)))


def test_those_who_write_there_are_told_once_and_those_who_would_are_held(run: Run) -> None:
    run.fails("1", 10.0)
    run.fails("2", 12.0)
    (full,) = run.records("storage.full")
    assert (full.subject.resource, full.detected_by) == ("/scratch", PERDURE)
    assert "/scratch is full, on which job 1 could not write" in full.note
    assert [record.subject.job_id for record in run.records("job.pause")] == ["3"]
    assert run.acts(Hold) == ["5"]
    assert not any(getattr(e.action, "exclude", ()) for e in run.effects if isinstance(e, Act))


def test_once_there_is_room_what_was_held_is_released_and_the_next_time_is_new(run: Run) -> None:
    run.fails("1", 10.0)
    carried_out(run)
    (full,) = full_now(run.state.chain, PERDURE)
    assert room_again(full, ENOUGH - 0.001, PERDURE, 30.0) is None
    restored = room_again(full, ENOUGH, PERDURE, 30.0)
    assert restored is not None
    run.feed(ChainInput(30.0, (ExceptionRaised(restored, own=True),)))
    assert run.acts(Release) == ["5"]
    carried_out(run)
    assert full_now(run.state.chain, PERDURE) == []
    run.jobs["5"] = job("5", JobState.COMPLETED)
    run.fails("2", 2000.0)
    assert len({record.id for record in run.records("storage.full")}) == 2


@given(st.lists(st.sampled_from(["/scratch", "/home", "/data"]), max_size=6))
def test_each_file_system_is_told_of_once_whatever_others_are_full(stores: list[Any]) -> None:
    run = Run()
    for n, store in enumerate(stores):
        run.fails(str(10 + n), 10.0 + 2 * n, store)
    assert [record.subject.resource for record in run.records("storage.full")] == list(dict.fromkeys(stores))


def test_a_failure_on_a_file_system_with_room_raises_nothing(run: Run) -> None:
    run.fails("1", 10.0, store="")
    assert run.records("storage.full") == []
    assert run.acts(Hold) == []


def test_what_somebody_else_said_is_full_he_says_is_not(run: Run) -> None:
    run.fails("1", 10.0)
    assert full_now(run.state.chain, "operator:root") == []
