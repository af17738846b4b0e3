"""What needs a person ends with its job, by the engine's own clock, where nothing else is on its way."""

from pathlib import Path

import pytest

from perdure.backends.simulated import Script
from perdure.coordination.messages import ExceptionRaised
from perdure.coordination.record import ExceptionOutcome, ExceptionRecord, ExceptionState, Scope, Subject
from perdure.triage.verdict import Label, Verdict
from tests.service.workers import test_holds
from tests.service.workers.test_holds import Place


@pytest.mark.parametrize("failures", [0, 1])
def test_what_nobody_took_of_a_job_is_over_soon_after_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Also where the job failed and is left to its owner: that failure is told apart."""
    final = Verdict(Label.DETERMINISTIC, 0.02, "shape", "shapes do not match", fingerprint="shape")
    monkeypatch.setattr(test_holds, "judge", lambda *_: final)
    place = Place(tmp_path)
    try:
        job_id = place.cluster.submit(Script(run_s=1000.0, failures=failures))
        place.round(10.0)
        place.round()
        said = ExceptionRecord(
            "x", "process.exit", 1, Scope.LOCAL, Subject("sim", job_id), place.cluster.now, detected_by="operator:root"
        )
        place.engine.tell((ExceptionRaised(said),))
        place.round(200.0)  # nobody answers until its deadline
        place.round()
        assert place.record("x").state is ExceptionState.ESCALATED
        assert not place.engine.state.chain.open
        place.round(1000.0)
        place.round()
        place.round()
        assert place.record("x").outcome is ExceptionOutcome.WITHDRAWN
    finally:
        place.engine.close()


def test_what_is_raised_of_a_job_that_has_failed_is_over_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = Verdict(Label.DETERMINISTIC, 0.02, "shape", "shapes do not match", fingerprint="shape")
    monkeypatch.setattr(test_holds, "judge", lambda *_: final)
    place = Place(tmp_path)
    try:
        job_id = place.cluster.submit(Script(run_s=20.0, failures=1))
        for _ in range(3):
            place.round(20.0)
        said = ExceptionRecord(
            "x", "process.exit", 1, Scope.LOCAL, Subject("sim", job_id), place.cluster.now, detected_by="viewer:mira"
        )
        place.engine.tell((ExceptionRaised(said),))
        assert "is recovered as" in place.record("x").verdicts[-1].note
        assert not place.engine.state.chain.open
        place.round()
        assert place.record("x").outcome is ExceptionOutcome.WITHDRAWN
    finally:
        place.engine.close()
