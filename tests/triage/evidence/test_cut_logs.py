"""Long logs, of which a head and a tail are read: what ended the job is at the end of the tail."""

import pytest

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.triage.evidence.ending import with_ending
from perdure.triage.evidence.excerpt import excerpt, last_block
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from perdure.triage.text.logtext import Limits, LogText
from perdure.triage.verdict import Verdict

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
FAILED = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n5",), 1000.0, 1600.0, exit_code=1)
STEPS = "".join(f"step {n} loss 0.5\n" for n in range(1, 2000))
ENDS_HERE = "the very last words\n"


def cut(log: str) -> LogText:
    text = LogText.of(log.encode(), Limits(head_bytes=8000, tail_bytes=8000))
    assert len(text.windows) == 2
    return text


def judged(log: str) -> Verdict:
    text = cut(log)
    return with_ending(judge(text, FAILED), text, FAILED)


def test_hardware_that_breaks_at_the_end_is_proven_broken_and_at_the_beginning_it_is_not() -> None:
    assert judged(STEPS + ECC).hardware == ECC.strip()
    assert judged(ECC + STEPS).hardware == ""


def test_the_last_words_are_those_of_the_tail() -> None:
    assert ENDS_HERE.strip() in judged(STEPS + ENDS_HERE).ending


@pytest.mark.parametrize("failure", ["", "KeyError: 'labels'\n"])
def test_an_excerpt_ends_as_the_log_does(failure: str) -> None:
    text = cut(STEPS + failure + ENDS_HERE)
    found = excerpt(text, last_block(own_rules().hits(text)), size=2000)
    assert found.text.endswith(ENDS_HERE.strip())


def test_a_failure_that_a_traceback_ends_is_no_steps_earlier_though_a_buffer_is_written_after_it() -> None:
    raised = f'Traceback (most recent call last):\n  File "train.py", line 5, in <module>\n    y = net(x)\n{ECC}'
    buffered = "".join(f"step {n} loss 0.5\n" for n in range(1, 9))
    assert judge(f"starting\n{raised}{buffered}".encode(), FAILED).hardware == ECC.strip()
    assert judge(f"starting\n{ECC}{buffered}".encode(), FAILED).hardware == ""
