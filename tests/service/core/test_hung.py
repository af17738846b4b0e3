"""What `perdure exec` raised of a hang counts where the log does not say so, and only there."""

import pytest

from perdure.coordination.record import ExceptionRecord, Scope, Subject
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.service.core.hung import HANG, notes_of, of_hang
from perdure.triage.judge import judge
from perdure.triage.verdict import Verdict
from tests.copying import replace

NOTE = "rank 1 on n2 stopped first: train.py:17 in load; rank 0 waits for it in backward; no sign of life for 22 s"
ENDED = Attempt(AttemptId("c", "7", 3), AttemptState.FAILED, ("n1", "n2"), 0.0, 90.0, exit_code=75)
RECORD = ExceptionRecord(
    "x1", "app.hang", 3, Scope.LOCAL, Subject("c", "7"), 60.0, note=NOTE, incarnation=3, detected_by="user:ada"
)


def told(log: str, record: ExceptionRecord = RECORD, attempt: Attempt = ENDED) -> Verdict:
    return of_hang(judge(log.encode(), attempt), attempt, notes_of(HANG, attempt, [record]))


def test_a_hang_that_was_raised_is_one_where_the_log_is_silent() -> None:
    verdict = told("step 5 loss 0.3")
    assert (verdict.category, verdict.rank, verdict.node) == ("hang", "1", "n2")


def test_what_the_log_names_as_a_cause_stays() -> None:
    assert told("ValueError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)").category != "hang"


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, incarnation=2),
        replace(RECORD, subject=Subject("c", "8")),
        replace(RECORD, subject=Subject("other", "7")),
        replace(RECORD, type="app.walltime"),
    ],
)
def test_one_that_was_raised_of_something_else_does_not_count(record: ExceptionRecord) -> None:
    assert told("step 5 loss 0.3", record).category == "unknown"


def test_one_that_the_program_came_back_from_does_not_count() -> None:
    assert told("step 5 loss 0.3", attempt=replace(ENDED, exit_code=3)).category != "hang"


def test_of_several_that_were_raised_the_last_one_counts() -> None:
    """The launchers may have been called off, and have looked again."""
    records = [RECORD, replace(RECORD, id="x2", note=NOTE.replace("rank 1 on n2", "rank 3 on n1"))]
    verdict = of_hang(judge(b"step 5", ENDED), ENDED, notes_of(HANG, ENDED, records))
    assert (verdict.rank, verdict.node) == ("3", "n1")
