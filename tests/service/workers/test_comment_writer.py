"""What was decided is written into jobs' records, beside the executor and by the same rulings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ClusterError
from perdure.model.actions import Comment, Exclude, Requeue
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.service.core.scope import ScopeSettings
from perdure.service.core.settings import Caps
from perdure.service.store.journal import ActionState
from perdure.service.workers.comment_writer import MAX_COMMENTS, NO_ANSWER, CommentWriter
from tests.copying import replace
from tests.service.workers.test_executor import BUSY, Bench, Scripted, requeue


class Writing(Scripted):
    """A backend that also writes lines into jobs' records."""

    def write_comments(self, actions: Sequence[Exclude | Requeue]) -> list[Any]:
        self.performed.append([action.key for action in actions])
        answer = self._answer(self.performs)
        return [answer] * len(actions)


def comments(*job_ids: int) -> list[Any]:
    return [Comment(AttemptId("c", str(job_id), 1), "perdure: said") for job_id in job_ids]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.backend = Writing()
    made.restart()
    yield made
    made.journal.close()


def write(bench: Bench, now: float = 10.0, **settings: Any) -> list[ActionEnded]:
    return CommentWriter(bench.journal, bench.backend, replace(bench.settings, **settings)).write_due(now)


def states(bench: Bench, wanted: list[Any]) -> list[Any]:
    return [bench.state(action) for action in wanted]


def test_comments_are_written_together_by_the_writer_alone_and_cost_no_cap(bench: Bench) -> None:
    full = Caps(actions_per_hour=1, floor_per_hour=1)
    bench.settings = replace(bench.settings, caps=full)
    bench.restart()
    wanted = [*comments(1, 2, 3), requeue(4)]
    bench.plan(*wanted)
    ends = write(bench)
    assert [end.action_key for end in ends] == [action.key for action in wanted[:3]]
    bench.executor.run_due(11.0)
    assert bench.backend.performed == [[action.key for action in wanted[:3]], wanted[3].key]
    assert states(bench, wanted) == [ActionState.DONE] * 4
    assert bench.journal.action(wanted[3].key).action.delay_s == 0  # no cap holds it back


def test_the_executor_neither_writes_comments_nor_asks_what_became_of_them(bench: Bench) -> None:
    wanted = comments(1)
    bench.plan(*wanted)
    bench.executor.run_due(10.0)
    assert states(bench, wanted) == [ActionState.PLANNED]
    bench.backend.performs = [BUSY]
    write(bench)
    bench.executor.recover(20.0)
    assert states(bench, wanted) == [ActionState.STARTED]
    assert bench.backend.looked_up == []


def test_a_job_whose_comment_has_no_answer_is_not_held_up(bench: Bench) -> None:
    bench.plan(*comments(1))
    bench.backend.performs = [BUSY]
    write(bench)
    bench.plan(requeue(1))
    bench.executor.run_due(11.0)
    assert bench.state(requeue(1)) is ActionState.DONE


def test_comments_without_an_answer_are_written_again(bench: Bench) -> None:
    wanted = comments(1, 2)
    bench.plan(*wanted)
    bench.backend.performs = [BUSY]
    assert write(bench) == []
    assert states(bench, wanted) == [ActionState.STARTED] * 2
    assert len(write(bench, 20.0)) == 2
    assert states(bench, wanted) == [ActionState.DONE] * 2


def test_of_what_may_have_been_written_it_is_not_said_that_it_was_never_begun(bench: Bench) -> None:
    begun, later = comments(1, 2)
    bench.plan(begun)
    bench.backend.performs = [BUSY]
    write(bench)
    bench.settings.stop_file.touch()
    bench.plan(later)
    write(bench, 500.0)
    assert states(bench, [begun, later]) == [ActionState.STARTED, ActionState.PLANNED]
    write(bench, 1000.0)
    assert states(bench, [begun, later]) == [ActionState.EXPIRED] * 2
    assert bench.detail(begun) == NO_ANSWER
    assert bench.detail(later).startswith("not begun within")
    assert len(bench.backend.performed) == 1


def test_comments_obey_the_kill_switch_and_expire(bench: Bench) -> None:
    wanted = comments(1)
    bench.plan(*wanted)
    bench.settings.stop_file.touch()
    write(bench)
    assert bench.backend.performed == []
    assert bench.detail(wanted[0]) == "the kill switch is on"
    bench.settings.stop_file.unlink()
    write(bench, 1000.0)
    assert states(bench, wanted) == [ActionState.EXPIRED]
    assert bench.backend.performed == []


def test_outside_the_scope_none_is_written(bench: Bench) -> None:
    bench.owns("ada", 1)
    wanted = comments(1)
    bench.plan(*wanted)
    write(bench, scope=ScopeSettings(not_users=("ada",)))
    assert states(bench, wanted) == [ActionState.SHADOW]
    assert bench.backend.performed == []


def test_what_cannot_be_written_is_refused_with_the_reason(bench: Bench) -> None:
    wanted = comments(1)
    bench.plan(*wanted)
    bench.backend.performs = [ClusterError("c", "says no", "Ask")]
    write(bench)
    assert states(bench, wanted) == [ActionState.REFUSED]
    assert "says no" in bench.detail(wanted[0])


def test_a_storm_of_comments_is_written_in_portions(bench: Bench) -> None:
    wanted = comments(*range(1, MAX_COMMENTS + 3))
    bench.plan(*wanted)
    write(bench)
    assert [len(keys) for keys in bench.backend.performed] == [MAX_COMMENTS]
    write(bench, 20.0)
    assert states(bench, wanted) == [ActionState.DONE] * len(wanted)
