"""The chain of handlers: at most one owner, the order of the scope, answers only appended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.coordination.chain import declined, offer
from perdure.coordination.record import Answer, AnswerKind, Component, ExceptionRecord, Scope, about
from perdure.model.identity import AttemptId


def record(scope=Scope.LOCAL):
    return ExceptionRecord("x", "job.net", 0, scope, about(AttemptId("c", "1", 1)), 0.0)


def saying(component, kind, asked):
    def handler(_):
        asked.append(component)
        return Answer(component, kind, 1.0, "")

    return handler


@given(
    scope=st.sampled_from(Scope),
    kinds=st.dictionaries(st.sampled_from(Component), st.sampled_from(AnswerKind)),
)
def test_the_first_in_order_that_handles_owns_it(scope, kinds):
    asked = []
    done = offer(record(scope), {c: saying(c, k, asked) for c, k in kinds.items()})
    willing = [c for c in scope.order if kinds.get(c) is AnswerKind.HANDLED]
    assert done.owner == (willing[0] if willing else None)
    last = scope.order.index(willing[0]) if willing else len(scope.order)
    assert asked == [c for c in scope.order[: last + 1] if c in kinds]
    assert [a.component for a in done.verdicts] == asked


def test_a_global_exception_goes_the_other_way():
    assert Scope.GLOBAL.order == Scope.LOCAL.order[::-1]


def test_a_second_owner_is_impossible():
    owned = record().with_answer(Answer(Component.JOB, AnswerKind.HANDLED, 0.0, ""))
    with pytest.raises(ValueError, match="owned by job"):
        owned.with_answer(Answer(Component.SCHEDULER, AnswerKind.HANDLED, 0.0, ""))


def test_handlers_see_the_answers_before_theirs():
    seen = []

    def scheduler(so_far):
        seen.extend(a.note for a in so_far.verdicts)
        return declined(Component.SCHEDULER, 2.0, "")

    def job(_):
        return declined(Component.JOB, 1.0, "rolled back")

    offer(record(), {Component.JOB: job, Component.SCHEDULER: scheduler})
    assert seen == ["rolled back"]
