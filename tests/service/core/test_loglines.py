"""What the service's log says."""

import logging
from typing import Any

import pytest

from perdure.coordination.record import ExceptionRecord, Scope, Subject
from perdure.log import PrintableFormatter, Repeats, printable
from perdure.model.events import ActionEnded, SightChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState
from perdure.retry.decide import Decision, DecisionKind
from perdure.service.core.case import ControllerState, Failure
from perdure.service.core.loglines import lines
from perdure.service.core.messages import Journalled, Noted
from perdure.triage.verdict import Label, Verdict

NOW = 100.0


def said(*events: ActionEnded | SightChanged) -> list[Any]:
    return [(line.level, line.text) for line in lines(map(Journalled, events), ControllerState("c"), NOW)]


def test_an_action_is_told_with_its_outcome() -> None:
    end = ActionEnded(NOW, "requeue:c/7/1", AttemptId("c", "7", 1), "refused", "no rights")
    assert said(end) == [(logging.WARNING, "action requeue:c/7/1: refused: no rights")]


def test_an_action_that_ended_without_a_word_ends_its_line() -> None:
    assert said(ActionEnded(NOW, "requeue:c/7/1", None, "done", "")) == [(logging.INFO, "action requeue:c/7/1: done")]


@pytest.mark.parametrize(("summary", "why"), [("a bad shape", "(shape; "), ("other words", "(shape: other words; ")])
def test_a_decision_says_its_cause_once(summary: str, why: str) -> None:
    attempt = Attempt(AttemptId("c", "7", 1), AttemptState.FAILED, ("n1",), 0.0, 90.0, user="ada")
    verdict = Verdict(Label.DETERMINISTIC, 0.02, "shape", summary)
    decision = Decision(DecisionKind.STOP, "a bad shape: it would fail again")
    record = ExceptionRecord("c/7#1", "job.shape", 0, Scope.LOCAL, Subject("c", "7"), NOW)
    failure = Failure(attempt, record, verdict, decision)
    (line,) = lines([Noted(record, failure)], ControllerState("c"), NOW)
    assert line.text.startswith("job 7 of ada: stop: a bad shape: it would fail again (shape")
    assert why in line.text


@pytest.mark.parametrize(("end_s", "told"), [(NOW - 0.4, "just now"), (NOW - 3.0, "3 s ago"), (NOW + 2.0, "just now")])
def test_a_decision_says_how_long_ago_the_attempt_ended(end_s: float, told: str) -> None:
    attempt = Attempt(AttemptId("c", "7", 1), AttemptState.FAILED, ("n1",), 0.0, end_s, user="ada")
    record = ExceptionRecord("c/7#1", "job.shape", 0, Scope.LOCAL, Subject("c", "7"), NOW)
    verdict, decision = Verdict(Label.DETERMINISTIC, 0.02, "shape", "x"), Decision(DecisionKind.STOP, "no")
    (line,) = lines([Noted(record, Failure(attempt, record, verdict, decision))], ControllerState("c"), NOW)
    assert line.text.endswith(f"; ended {told})")


def test_on_a_terminal_what_is_merely_told_takes_one_line() -> None:
    def shown(level: int, width: int | None) -> str:
        record = logging.LogRecord("perdure", level, "", 0, "%s", ("decided " * 40,), None)
        return PrintableFormatter(width).format(record)

    assert (len(shown(logging.INFO, 80)), shown(logging.INFO, 80)[-1]) == (80, "…")
    assert len(shown(logging.INFO, None)) > 300
    assert len(shown(logging.WARNING, 80)) > 300


def test_a_manager_that_is_silent_is_told_of_and_its_return() -> None:
    gone, back = SightChanged(NOW, "c", "controller", "no answer"), SightChanged(NOW, "c", "controller", "")
    assert said(gone, back) == [
        (logging.WARNING, "controller cannot be seen: no answer"),
        (logging.WARNING, "controller can be seen again"),
    ]


def test_a_hostile_name_moves_no_cursor() -> None:
    assert printable("a\x1b[2J\n\u202eb") == "a\\x1b[2J\\n\\u202eb"
    record = logging.LogRecord("perdure", logging.INFO, "", 0, "%s", ("a\nERROR forged",), None)
    assert "\n" not in PrintableFormatter().format(record)


def test_what_is_said_again_and_again_is_told_once() -> None:
    repeats = Repeats(every_s=600.0)
    assert [repeats.is_news("look", "no answer", at) for at in (1.0, 2.0, 500.0, 700.0)] == [True, False, False, True]
    assert repeats.is_news("look", "something else", 701.0)
    assert [repeats.ended("look"), repeats.ended("look")] == [True, False]
