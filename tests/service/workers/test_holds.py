"""Jobs held because of what they share, by the real engine on a simulated cluster: all run after the all-clear."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.simulated import EVERY, Script, SimulatedBackend, SimulatedCluster
from perdure.coordination.messages import ExceptionRaised
from perdure.coordination.record import ExceptionOutcome, ExceptionRecord, ExceptionState, Scope, Subject
from perdure.model.actions import Release
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, JobState
from perdure.model.output import Output
from perdure.service.core.messages import Ordered
from perdure.service.core.settings import Caps, ControllerSettings
from perdure.service.store.journal import Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.triage.evidence.context import Context
from perdure.triage.verdict import Label, Verdict

TTL_S = 20.0
SHORT = Script(run_s=5.0)
ONCE = Script(run_s=5.0, failures=1)
CAPS = Caps(actions_per_hour=60, floor_per_hour=60)  # of which one user has half


class Place:
    """A service that may die and start anew, on a cluster that goes on."""

    def __init__(self, directory: Path, caps: Caps = CAPS) -> None:
        self.directory, self.caps = directory, caps
        self.cluster = SimulatedCluster(0)
        self.backend = SimulatedBackend(self.cluster)
        self.start()

    def start(self) -> None:
        self.journal = Journal.open(self.directory, "sim")
        executor = Executor(self.journal, self.backend, ExecutorSettings(True, self.directory / "STOP", self.caps))
        settings = ControllerSettings(action_ttl_s=TTL_S)
        self.engine = Engine(self.backend, self.journal, executor, judge, settings, lambda: self.cluster.now)
        self.engine.recover()

    def die(self) -> None:
        self.engine.close()
        self.start()

    def say(self, name: str, kind: str, resource: str = "pfs") -> None:
        subject = Subject("sim", resource=resource)
        record = ExceptionRecord(name, kind, 0, Scope.GLOBAL, subject, self.cluster.now, detected_by="operator:root")
        self.engine.tell((ExceptionRaised(record),))

    def order_release(self, attempt: AttemptId) -> None:
        self.engine.absorb([Ordered(self.cluster.now, Release(attempt), "root", "it needs nothing of it")])

    def full(self) -> None:
        """No job starts any more."""
        for node in self.cluster.node_names:
            self.cluster.fail_node(node)

    def free(self) -> None:
        for node in self.cluster.node_names:
            self.cluster.return_node(node)

    def round(self, seconds: float = 1.0) -> None:
        """Look, judge, act, look: then time passes."""
        self.engine.look()
        while self.engine.judge_next(0.0):
            pass
        self.engine.tick()
        self.engine.act()
        self.engine.look()
        self.cluster.advance(seconds)

    def record(self, name: str) -> ExceptionRecord | None:
        return self.engine.state.chain.find(name)

    def states(self, *job_ids: str) -> list[Any]:
        return [self.cluster.job(job_id).state for job_id in job_ids or self.cluster.job_ids]

    def actions(self, kind: str) -> list[Any]:
        return [row for row in self.journal._actions() if row.action.kind == kind]


def judge(log: Output, attempt: Attempt, context: Context) -> Verdict:
    return Verdict(Label.TRANSIENT, 0.9, "network", "it passes", fingerprint="passing")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.engine.close()


@pytest.mark.parametrize("dies", [False, True])
def test_every_job_runs_after_the_all_clear_whatever_the_cap_and_the_time_it_takes(place: Place, dies: bool) -> None:
    """36 jobs of one user wait, 30 of its actions an hour are allowed, and no action may be older than 20 seconds."""
    place.full()
    for _ in range(36):
        place.cluster.submit(SHORT)
    place.engine.look()
    place.say("down", "storage.down")
    place.round()
    place.free()
    assert place.states().count(JobState.HELD) == 30
    for _ in range(3):
        place.round(10.0)
    assert len(place.record("down").holds) == 30  # the others were not held in time: they have run
    assert place.record("down").state is ExceptionState.ESCALATED
    (place.directory / "STOP").touch()
    place.say("up", "storage.restored")
    for _ in range(3):
        place.round(10.0)
        if dies:
            place.die()
    assert place.states().count(JobState.HELD) == 30
    assert place.record("down").outcome is ExceptionOutcome.CLEARING
    (place.directory / "STOP").unlink()
    place.round()
    if dies:
        place.die()
    for _ in range(6):
        place.round(10.0)
    assert set(place.states()) == {JobState.COMPLETED}
    assert place.record("down").outcome is ExceptionOutcome.RECOVERED
    assert len(place.actions("release")) == 30


def test_a_job_that_comes_while_it_is_down_is_held_and_let_go_with_the_others(place: Place) -> None:
    place.full()
    first = place.cluster.submit(SHORT)
    place.engine.look()
    place.say("down", "storage.down")
    place.round()
    later = [place.cluster.submit(SHORT) for _ in range(2)]
    place.round()
    place.free()
    place.die()
    for _ in range(3):
        place.round(60.0)
    assert set(place.states(first, *later)) == {JobState.HELD}
    needed = [r for r in place.engine.state.chain.ended.values() if r.cause == "down"]
    assert [len(record.holds) for record in needed] == [2]
    place.say("up", "storage.restored")
    for _ in range(3):
        place.round(10.0)
    assert set(place.states()) == {JobState.COMPLETED}


def test_a_job_that_fails_while_it_is_down_is_put_back_and_starts_only_after_the_all_clear(place: Place) -> None:
    job_id = place.cluster.submit(ONCE)
    place.cluster.advance(1.0)
    place.engine.look()
    place.say("down", "storage.down")
    place.cluster.advance(5.0)
    place.round()
    assert len(place.actions("requeue")) == 1
    for _ in range(5):
        place.round(100.0)
    assert place.states(job_id) == [JobState.HELD]
    assert len(place.cluster.attempts(job_id)) == 1
    place.say("up", "storage.restored")
    for _ in range(3):
        place.round(10.0)
    assert place.states(job_id) == [JobState.COMPLETED]
    assert place.record("down").outcome is ExceptionOutcome.RECOVERED


def test_a_job_that_a_person_lets_go_runs(place: Place) -> None:
    job_id = place.cluster.submit(SHORT)
    place.engine.look()
    place.say("down", "storage.down")
    place.round()
    (hold,) = place.actions("hold")
    place.order_release(hold.action.attempt)
    for _ in range(3):
        place.round(10.0)
    assert place.states(job_id) == [JobState.COMPLETED]
    assert (place.record("down").holds, place.record("down").is_hold_order) == ((), True)


def test_in_shadow_mode_nothing_is_held_and_it_ends_all_the_same(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.engine.executor.settings = ExecutorSettings(False, tmp_path / "STOP")
    jobs = [place.cluster.submit(Script(run_s=5.0, failures=EVERY)) for _ in range(2)]
    place.engine.look()
    place.say("down", "storage.down")
    for _ in range(4):
        place.round(10.0)
    assert JobState.HELD not in place.states(*jobs)
    assert len(place.actions("hold")) == 2  # said once each
    place.say("up", "storage.restored")
    place.round()
    assert place.record("down").outcome is ExceptionOutcome.RECOVERED
    place.engine.close()
