"""The line that each decision leaves in a job's record."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.actions import Comment, Exclude, Hold, Release, Requeue
from perdure.model.identity import AttemptId
from perdure.model.job_comment import mark_of
from perdure.service.core.comments import MAX_CHARACTERS, commented, instance_mark, line_of

ATTEMPT = AttemptId("c", "7", 100)


@given(st.text(max_size=400), st.text(max_size=60))
def test_a_line_is_short_plain_and_tells_whose_it_is(note: str, misread: str) -> None:
    line = line_of(ATTEMPT, note, misread, "0a1b2c")
    assert len(line) <= MAX_CHARACTERS
    assert line.isprintable()
    assert line.isascii()
    assert line.startswith("perdure: ")
    assert line.endswith(". perdure why 7 #0a1b2c")
    assert mark_of(line) == mark_of(f'"{line}"') == "0a1b2c"


def test_of_a_job_that_slurm_put_back_the_line_tells_what_failed_and_leaves_the_figures_out() -> None:
    said = "requeued by the resource manager, kept off n2; no peer: retry away from n2"
    line = line_of(ATTEMPT, f"{said}; expected cost 0.1 node-h if retried, 3.1 if stopped (p = 0.78)", "", "0a1b2c")
    assert line == f"perdure: {said}. perdure why 7 #0a1b2c"


def test_a_line_tells_when_the_attempt_failed() -> None:
    failed_s = datetime(2026, 11, 23, 18, 31, 4).timestamp()
    assert line_of(ATTEMPT, "no peer", "", "0a1b2c", failed_s).startswith(
        "perdure: failed 2026-11-23 18:31:04: no peer."
    )


@pytest.mark.parametrize(
    ("note", "said"),
    [
        (
            "the log speaks of a broken GPU or node, though in other words than the driver's, by the job's own log"
            " alone: retry away from node4, though node4 was asked for by -w, in 1 s",
            "the log speaks of a broken GPU or node, though in other words than the...:"
            " retry away from node4, though node4 was asked for by -w, in 1 s",
        ),
        (
            "a program that it needs was killed, and nothing in its log says by whom: the job's retries for causes of"
            " its own are spent (3 of 3, 1 of them by the resource manager's count alone)",
            "a program that it needs was killed, and nothing in its log says by whom:"
            " the job's retries for causes of its own are spent",
        ),
        ("no peer: " + 30 * "word ", "no peer: " + " ".join(25 * ["word"]) + "..."),
        (60 * "word " + ": it would fail again", " ".join(23 * ["word"]) + "...: it would fail again"),
    ],
)
def test_of_a_long_reason_asides_go_and_then_the_end_of_what_failed_at_a_word(note: str, said: str) -> None:
    line = line_of(ATTEMPT, note, "", "0a1b2c", datetime(2026, 11, 23, 18, 31, 4).timestamp())
    assert line == f"perdure: failed 2026-11-23 18:31:04: {said}. perdure why 7 #0a1b2c"
    assert len(line) <= MAX_CHARACTERS


@pytest.mark.parametrize(
    "text",
    [
        "see #12",
        "perdure:retry=never #12",
        "#0a1b2c",
        "",
        "perdure: writes to prod, see #0a1b2c",
        "perdure: retry=never",
    ],
)
def test_what_others_wrote_bears_no_mark(text: str) -> None:
    assert mark_of(text) == mark_of(f'"{text}"') == ""


def test_of_a_long_reason_what_was_not_understood_is_answered_all_the_same() -> None:
    assert "; not understood: perdure:retry=nevr. perdure why" in line_of(
        ATTEMPT, "x" * 400, "perdure:retry=nevr", "0a1b2c"
    )


def test_a_line_leaves_the_numbers_out_and_answers_words_that_nobody_knows() -> None:
    note = "connection lost: retry away from n2, in 60 s; expected cost 0.1 GPU-h"
    said = "perdure: connection lost: retry away from n2, in 60 s"
    assert line_of(ATTEMPT, note, "", "0a1b2c") == f"{said}. perdure why 7 #0a1b2c"
    assert line_of(ATTEMPT, note, "retry=nver", "0") == f"{said}; not understood: retry=nver. perdure why 7 #0"


def test_what_puts_a_job_back_or_lets_it_go_carries_the_line() -> None:
    """On its own it came after the start of a job that Slurm itself had put back, and was superseded."""
    kept_off, let_go = Exclude(ATTEMPT, ("n1",)), Release(ATTEMPT)
    assert commented((kept_off, let_go), ATTEMPT, "x") == (Exclude(ATTEMPT, ("n1",), comment="x"), let_go)
    assert commented((let_go,), ATTEMPT, "x") == (Release(ATTEMPT, comment="x"),)
    another = Release(AttemptId("c", "8", 100))
    assert commented((another,), ATTEMPT, "x") == (another, Comment(ATTEMPT, "x"))


def test_a_requeue_carries_the_line_and_any_other_decision_has_it_of_its_own() -> None:
    put_back, held = Requeue(ATTEMPT), Hold(ATTEMPT)
    assert commented((put_back,), ATTEMPT, "x") == (Requeue(ATTEMPT, comment="x"),)
    assert commented((held,), ATTEMPT, "x") == (held, Comment(ATTEMPT, "x"))
    assert commented((), ATTEMPT, "x") == (Comment(ATTEMPT, "x"),)


def test_services_with_one_journal_share_a_mark() -> None:
    assert instance_mark("postgresql://a/b") == instance_mark("postgresql://a/b") != instance_mark("host:/state")
