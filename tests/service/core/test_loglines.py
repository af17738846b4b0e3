"""What the service's log says."""

import logging

from perdure.model.events import ActionEnded, SightChanged
from perdure.model.identity import AttemptId
from perdure.service.core.case import State
from perdure.service.core.controller import Journalled
from perdure.service.core.loglines import PrintableFormatter, Repeats, lines, printable

NOW = 100.0


def said(*events):
    return [(line.level, line.text) for line in lines(map(Journalled, events), State("c"), NOW)]


def test_an_action_is_told_with_its_outcome():
    end = ActionEnded(NOW, "requeue:c/7/1", AttemptId("c", "7", 1), "refused", "no rights")
    assert said(end) == [(logging.WARNING, "action requeue:c/7/1: refused: no rights")]


def test_a_manager_that_is_silent_is_told_of_and_its_return():
    gone, back = SightChanged(NOW, "c", "controller", "no answer"), SightChanged(NOW, "c", "controller", "")
    assert said(gone, back) == [
        (logging.WARNING, "controller cannot be seen: no answer"),
        (logging.WARNING, "controller can be seen again"),
    ]


def test_a_hostile_name_moves_no_cursor():
    assert printable("a\x1b[2J\n\u202eb") == "a\\x1b[2J\\n\\u202eb"
    record = logging.LogRecord("perdure", logging.INFO, "", 0, "%s", ("a\nERROR forged",), None)
    assert "\n" not in PrintableFormatter().format(record)


def test_what_is_said_again_and_again_is_told_once():
    repeats = Repeats(every_s=600.0)
    assert [repeats.is_news("look", "no answer", at) for at in (1.0, 2.0, 500.0, 700.0)] == [True, False, False, True]
    assert repeats.is_news("look", "something else", 701.0)
    assert [repeats.ended("look"), repeats.ended("look")] == [True, False]
