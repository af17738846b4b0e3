"""On a simulated cluster jobs fail, are stopped, and pass when their owners run them again: then fewer are stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.backends.simulated import Script, SimulatedBackend, SimulatedCluster
from perdure.model.actions import Requeue
from perdure.model.identity import AttemptId
from perdure.retry.decide import DecisionKind
from perdure.service.core.settings import ControllerSettings
from perdure.service.learning.learner import Learner
from perdure.service.learning.training_store import TrainingStore
from perdure.service.store.journal import Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.triage.conformal import own_thresholds
from perdure.triage.evidence.rules import own_rules
from perdure.triage.verdict import Label, Verdict

RUN_S = 10.0
WRONG = "gadget {}: error: unrecognized arguments: --bay {}"
DAY_S = 86400.0


class Site:
    """A service that only watches, on a cluster where whoever was stopped may run it again."""

    def __init__(self, path: Path) -> None:
        self.cluster = SimulatedCluster(0, nodes=2)
        self.backend = SimulatedBackend(self.cluster)
        self.journal = Journal.open(path, "sim")
        store = TrainingStore(self.journal.store, "sim")
        self.learner = Learner(store, own_rules(), lambda: self.cluster.now)
        executor = Executor(self.journal, self.backend, ExecutorSettings(False, path / "STOP"))
        settings = ControllerSettings()
        self.engine = Engine(
            self.backend, self.journal, executor, self.learner.judge, settings, lambda: self.cluster.now
        )

    def fail(self, number: int, *, passes_then: bool = True) -> tuple[AttemptId, Verdict, DecisionKind]:
        """A job of a user of its own fails; what the service says of it."""
        error, failures = WRONG.format(number, number), 1 if passes_then else 9
        job = self.cluster.submit(Script(run_s=RUN_S, failures=failures, error=error, user=f"u{number}"))
        self.go_on()
        failure = self.engine.state.cases[job].failure
        assert failure is not None
        assert failure.verdict is not None
        assert failure.decision is not None
        return failure.attempt.id, failure.verdict, failure.decision.kind

    def run_again(self, attempt: AttemptId) -> None:
        """As its owner does, by the resource manager's own command."""
        self.cluster.carry_out(Requeue(attempt))
        self.go_on()

    def go_on(self) -> None:
        self.engine.look()
        self.cluster.advance(RUN_S + 1.0)
        self.engine.look()
        while any(case.failure and not case.failure.verdict for case in self.engine.state.cases.values()):
            self.engine.judge_next(5.0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.engine.close()


def test_stops_that_pass_when_run_again_become_probes(place: Site) -> None:
    for number in range(3):
        attempt, verdict, decided = place.fail(number)
        assert (verdict.label, decided) == (Label.DETERMINISTIC, DecisionKind.STOP)
        place.run_again(attempt)
    place.learner.turn()
    assert "3 of 3 failures that passed when run again had been stopped" in place.learner.promise.says
    _, verdict, decided = place.fail(9)
    assert (verdict.label, decided) == (Label.UNSURE, DecisionKind.PROBE)


def test_stops_that_fail_again_stay_stops(place: Site) -> None:
    for number in range(3):
        place.run_again(place.fail(number, passes_then=False)[0])
    place.learner.turn()
    assert place.learner.promise.thresholds == own_thresholds()
    assert place.fail(9)[2] is DecisionKind.STOP


def test_thresholds_come_back_as_the_window_slides_on(place: Site) -> None:
    for number in range(3):
        place.run_again(place.fail(number)[0])
    place.learner.turn()
    assert place.learner.promise.is_widened
    place.cluster.advance(91 * DAY_S)
    place.learner.turn()
    assert place.learner.promise.thresholds == own_thresholds()
