"""A record is a value: copies differ in what was asked for and in nothing else."""

from dataclasses import fields, replace

import pytest

from perdure.coordination.record import Answer, AnswerKind, Component, ExceptionRecord, Outcome, Scope, Subject
from perdure.model.actions import Hold
from perdure.model.identity import AttemptId

HELD = AttemptId("c", "7", 1)
RECORD = ExceptionRecord("x", "storage.down", 0, Scope.GLOBAL, Subject("c", resource="pfs:/scratch"), 1.0)


def handled(*actions, forbids=()):
    keys = tuple(action.key for action in actions)
    return RECORD.with_answer(Answer(Component.SCHEDULER, AnswerKind.HANDLED, 2.0, "", keys, forbids=forbids))


@pytest.mark.parametrize("name", [field.name for field in fields(ExceptionRecord)])
def test_a_copy_is_what_the_dataclass_would_make_of_it(name):
    before, changed = replace(RECORD), object()
    assert RECORD.but(**{name: changed}) == replace(RECORD, **{name: changed})
    assert before == RECORD


def test_a_field_that_is_none_is_refused_by_its_name():
    with pytest.raises(TypeError, match="severty"):
        RECORD.but(severty=1)


@pytest.mark.parametrize(
    ("record", "is_brake", "holds"),
    [
        (RECORD, False, ()),
        (handled(), False, ()),
        (handled(forbids=("start",)), True, ()),
        (handled(forbids=("start",)).but(outcome=Outcome.CLEARING), False, ()),
        (handled(Hold(HELD, "x")), False, (HELD,)),
        (handled(Hold(HELD, "x")).but(outcome=Outcome.CLEARING), False, (HELD,)),
        (handled(Hold(HELD, "x")).but(outcome=Outcome.RECOVERED), False, ()),
    ],
)
def test_it_is_in_force_while_it_brakes_or_holds(record, is_brake, holds):
    assert (record.is_brake, record.holds) == (is_brake, holds)
    assert record.is_in_force == (is_brake or bool(holds))


def test_it_has_one_owner():
    owned = handled()
    assert owned.owner is Component.SCHEDULER
    with pytest.raises(ValueError, match="is owned by"):
        owned.with_answer(owned.verdicts[0])
