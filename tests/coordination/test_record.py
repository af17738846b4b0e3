"""A record is a value: copies differ in what was asked for and in nothing else."""

import pytest

from perdure.coordination.record import Answer, AnswerKind, Component, ExceptionOutcome, ExceptionRecord, Scope, Subject
from perdure.coordination.record_changes import without_holds
from perdure.model.actions import Hold
from perdure.model.identity import AttemptId
from tests.copying import replace

HELD = AttemptId("c", "7", 1)
RECORD = ExceptionRecord("x", "storage.down", 0, Scope.GLOBAL, Subject("c", resource="pfs:/scratch"), 1.0)


def handled(*actions: Hold, forbids: tuple[str, ...] = ()) -> ExceptionRecord:
    keys = tuple(action.key for action in actions)
    return RECORD.with_answer(Answer(Component.SCHEDULER, AnswerKind.HANDLED, 2.0, "", keys, forbids=forbids))


@pytest.mark.parametrize(
    ("record", "is_hold_order", "holds"),
    [
        (RECORD, False, ()),
        (handled(), False, ()),
        (handled(forbids=("start",)), True, ()),
        (replace(handled(forbids=("start",)), outcome=ExceptionOutcome.CLEARING), False, ()),
        (handled(Hold(HELD, "x")), False, (HELD,)),
        (replace(handled(Hold(HELD, "x")), outcome=ExceptionOutcome.CLEARING), False, (HELD,)),
        (replace(handled(Hold(HELD, "x")), outcome=ExceptionOutcome.RECOVERED), False, ()),
    ],
)
def test_it_is_in_force_while_it_orders_a_hold_or_holds(
    record: ExceptionRecord, is_hold_order: bool, holds: tuple[AttemptId, ...]
) -> None:
    assert (record.is_hold_order, record.holds) == (is_hold_order, holds)
    assert record.is_in_force == (is_hold_order or bool(holds))


def test_a_program_that_owns_it_stops_no_job_from_starting() -> None:
    answer = Answer(Component.SCHEDULER, AnswerKind.HANDLED, 2.0, "", (), handler="ada/acme", forbids=("start",))
    assert not RECORD.with_answer(answer).is_hold_order


def test_who_sees_only_its_own_is_asked_first_and_of_what_is_shared_last() -> None:
    assert Scope.LOCAL.order == tuple(Component)
    assert Scope.GLOBAL.order == tuple(reversed(Component))


@pytest.mark.parametrize(
    ("over", "said"), [(1, "1 job is held no more, 1 still"), (2, "2 jobs are held no more, 0 still")]
)
def test_what_is_held_no_more_is_said(over: int, said: str) -> None:
    jobs = [HELD, AttemptId("c", "8", 1)]
    held = handled(*(Hold(each, "x") for each in jobs))
    assert without_holds(held, jobs[:over], 3.0).verdicts[-1].note == said


def test_it_has_one_owner() -> None:
    owned = handled()
    assert owned.owner is Component.SCHEDULER
    with pytest.raises(ValueError, match="is owned by"):
        owned.with_answer(owned.verdicts[0])
