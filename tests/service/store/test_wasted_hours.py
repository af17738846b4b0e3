"""GPU-hours count as wasted where the next attempt must run their steps again."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.service.core.case import Failure
from perdure.service.core.controller import _raised
from perdure.service.core.messages import Noted
from perdure.service.store.rows import failure_row
from perdure.triage.verdict import Label, Reached, Verdict

ATTEMPT = Attempt(AttemptId("c", "1", 1), AttemptState.PREEMPTED, ("n1",), 0.0, 7200.0, gpus=4)


@pytest.mark.parametrize(
    ("reached", "wasted"),
    [
        (None, 8.0),
        (Reached(step=99, first_step=0, whole=True), 8.0),
        (Reached(step=99, first_step=0, saved_step=99, checkpoint="checkpoint", whole=True), 0.0),
        (Reached(step=99, first_step=0, saved_step=74, checkpoint="checkpoint", whole=True), 2.0),
        (Reached(checkpoint="checkpoint"), 8.0),  # nobody knows how much came after it
    ],
)
def test_what_a_checkpoint_saved_is_not_wasted(reached: Reached | None, wasted: float) -> None:
    verdict = Verdict(Label.TRANSIENT, 0.9, "preempt", "the job was preempted", reached=reached)
    failure = Failure(ATTEMPT, _raised(ATTEMPT, 7200.0), verdict)
    assert failure_row(Noted(failure.record, failure))["wasted_gpu_h"] == pytest.approx(wasted)


def test_of_what_nobody_has_judged_all_counts() -> None:
    failure = Failure(ATTEMPT, _raised(ATTEMPT, 7200.0))
    assert failure_row(Noted(failure.record, failure))["wasted_gpu_h"] == 8.0
