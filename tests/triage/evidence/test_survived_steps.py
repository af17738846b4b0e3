"""A step fails, its batch script goes on (``srun ... || true``), and ends later by an exit code of its own."""

import pytest

from perdure.backends.script import survives_steps
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.model.output import Output
from perdure.triage.judge import judge
from perdure.triage.verdict import Label, Verdict
from tests.copying import replace

ENDED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 9.0, exit_code=7)
STEP = b"""RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)
srun: error: n1: task 0: Exited with exit code 1
evaluating
"""


def verdict(log: bytes, survives: bool, attempt: Attempt = ENDED) -> Verdict:
    output = replace(Output.of(log), survives_steps=survives)
    return judge(output, attempt)


def test_its_failure_is_no_more_than_a_guess() -> None:
    guess = verdict(STEP, survives=True)
    assert (guess.label, guess.category) == (Label.UNSURE, "shape")
    assert "its script went on after that step" in guess.summary
    assert verdict(STEP, survives=False).label is Label.DETERMINISTIC


def test_what_the_script_says_after_it_counts_in_full() -> None:
    own = verdict(STEP + b"ModuleNotFoundError: No module named 'evaluate'\n", survives=True)
    assert (own.label, own.category) == (Label.DETERMINISTIC, "import")


def test_a_job_that_a_signal_ended_did_not_end_itself() -> None:
    assert "went on" not in verdict(STEP, survives=True, attempt=replace(ENDED, exit_code=0, signal=11)).summary


@pytest.mark.parametrize(
    ("script", "survives"),
    [
        ("srun train || true", True),
        ("srun -n 2 \\\n  python train.py 2>&1 | tee log || :\necho done", True),
        ("srun a || true; srun b || true", True),
        ("srun a || true\nsrun b", False),
        ("srun a || exit 3", False),
        ("srun a && true", False),
        ("# srun a || true\nsrun b", False),
        ("python train.py || true", False),
        ("", False),
    ],
)
def test_whether_a_script_survives_its_steps(script: str, survives: bool) -> None:
    assert survives_steps(script.encode()) is survives
