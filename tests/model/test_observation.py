"""What lies between two looks at a cluster."""

from collections.abc import Sequence
from typing import Any

import pytest

from perdure.model.events import (
    AttemptEnded,
    AttemptStarted,
    ClusterEvent,
    JobChanged,
    JobGone,
    NodeChanged,
    NodeGone,
    SightChanged,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import GONE, REMEMBERED_S, Known, Observation, changes
from tests.copying import replace

JOB = Job("c", "1", "train", "ada", JobState.RUNNING, submit_s=0.0)
RUN = Attempt(AttemptId("c", "1", 1), AttemptState.RUNNING, ("n1",), start_s=1.0, user="ada")
UP = Node("n1", NodeState.UP, gpus=8)


def look(
    now: float,
    jobs: Sequence[Job] = (JOB,),
    attempts: Sequence[Attempt] = (RUN,),
    nodes: Sequence[Node] = (UP,),
    **unseen: Any,
) -> Observation:
    return Observation("c", now, tuple(jobs), tuple(attempts), tuple(nodes), unseen)


def seen_so_far(*looks: Observation, grace_s: float = 30.0) -> tuple[Known, list[ClusterEvent]]:
    known, events = Known(), []
    for one in looks:
        known, events = changes(known, one, grace_s=grace_s)
    return known, events


def kinds(
    events: list[ClusterEvent],
) -> list[Any]:
    return [type(event) for event in events]


def test_everything_is_news_at_first() -> None:
    _, events = seen_so_far(look(2.0))
    assert kinds(events) == [NodeChanged, JobChanged, AttemptStarted]


def test_the_same_look_twice_brings_no_news() -> None:
    _, events = seen_so_far(look(2.0), look(3.0))
    assert events == []


def test_an_end_is_told_once_and_with_its_job() -> None:
    over = replace(RUN, state=AttemptState.FAILED, end_s=5.0, exit_code=1)
    failed = replace(JOB, state=JobState.FAILED)
    known, events = seen_so_far(look(2.0), look(6.0, jobs=[failed], attempts=[over]))
    assert AttemptEnded(6.0, over, failed) in events
    assert changes(known, look(7.0, jobs=[failed], attempts=[over]))[1] == []


def test_of_several_nodes_that_are_down_one_is_named_with_its_own_reason_and_all_are_told() -> None:
    gang = replace(RUN, nodes=("n1", "n2", "n3"))
    up = [Node(f"n{i}", NodeState.UP) for i in (1, 2, 3)]
    down = [up[0], *(replace(node, state=NodeState.DOWN, reason=f"{node.name} is dark") for node in up[1:])]
    gone: dict[str, Any] = {"attempts": [], "nodes": down}
    _, events = seen_so_far(look(2.0, attempts=[gang], nodes=up), look(3.0, **gone), look(40.0, **gone))
    (end,) = [event.attempt for event in events if isinstance(event, AttemptEnded)]
    assert (end.reason, end.failed_nodes) == ("node n2 is down: n2 is dark", ("n2", "n3"))


def test_gpus_in_use_are_no_news() -> None:
    _, events = seen_so_far(look(2.0), look(3.0, nodes=[replace(UP, gpus_used=4)]))
    assert events == []


def test_silence_of_the_controller_ends_nothing() -> None:
    known, events = seen_so_far(look(2.0), look(1000.0, jobs=[], attempts=[], nodes=[], controller="no answer"))
    assert kinds(events) == [SightChanged]
    assert RUN.id in known.running
    assert "1" in known.jobs


def test_sight_that_comes_back_is_told() -> None:
    _, events = seen_so_far(look(2.0), look(3.0, accounting="down"), look(4.0))
    assert events == [SightChanged(4.0, "c", "accounting", "")]


@pytest.mark.parametrize(
    ("node", "state", "blamed"),
    [(UP, AttemptState.LOST, ()), (replace(UP, state=NodeState.DOWN), AttemptState.NODE_FAIL, ("n1",))],
)
def test_an_attempt_that_vanishes_ends_after_the_grace(
    node: Node, state: AttemptState, blamed: tuple[str, ...]
) -> None:
    waiting = replace(JOB, state=JobState.PENDING, restarts=1)
    known, events = seen_so_far(look(2.0), look(10.0, jobs=[waiting], attempts=[], nodes=[node]))
    assert AttemptEnded not in kinds(events)  # accounting may only lag
    _, events = changes(known, look(40.0, jobs=[waiting], attempts=[], nodes=[node]))
    (end,) = [event for event in events if isinstance(event, AttemptEnded)]
    assert (end.attempt.state, end.attempt.failed_nodes, end.attempt.end_s) == (state, blamed, 10.0)


def test_the_truth_within_the_grace_is_what_counts() -> None:
    over = replace(RUN, state=AttemptState.NODE_FAIL, end_s=9.0)
    known, _ = seen_so_far(look(2.0), look(10.0, attempts=[]))
    known, events = changes(known, look(12.0, attempts=[over]))
    assert [e.attempt.state for e in events if isinstance(e, AttemptEnded)] == [AttemptState.NODE_FAIL]
    assert not known.missing


@pytest.mark.parametrize(("gap_s", "told_again"), [(REMEMBERED_S - 1.0, False), (REMEMBERED_S + 1.0, True)])
def test_an_end_that_goes_unmentioned_for_a_while_is_no_news(gap_s: float, told_again: bool) -> None:
    over = replace(RUN, state=AttemptState.FAILED, end_s=9.0)
    long_ago, lately = look(10.0, attempts=[over]), look(5000.0, attempts=[over])
    unmentioned = look(5001.0, attempts=[]), look(4998.0 + gap_s, attempts=[])
    _, events = seen_so_far(look(2.0), long_ago, lately, *unmentioned, look(5000.0 + gap_s, attempts=[over]))
    assert AttemptEnded not in kinds(events)
    known, _ = seen_so_far(long_ago, look(10.0 + gap_s, attempts=[]))
    _, events = changes(known, look(20.0 + gap_s, attempts=[over]))
    assert (AttemptEnded in kinds(events)) is told_again


def test_what_is_remembered_of_ended_attempts_has_a_bound() -> None:
    known = Known()
    for hour in range(100):
        over = replace(RUN, id=AttemptId("c", str(hour), 1), state=AttemptState.COMPLETED, end_s=3600.0 * hour)
        known, _ = changes(known, look(3600.0 * hour, jobs=[], attempts=[over]))
    assert len(known.ended) == 24


@pytest.mark.parametrize("text", ["", "c", "c/1", "c/1#", "c/#2", "/1#2", "c/1#x", "c/1#-2"])
def test_an_attempt_id_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not CLUSTER/JOB#INCARNATION"):
        AttemptId.parse(text)


def test_an_attempt_id_reads_what_it_writes() -> None:
    wanted = AttemptId("prod", "4711_3", 2)
    assert AttemptId.parse(str(wanted)) == wanted


def test_a_look_at_a_few_jobs_proves_nothing_of_the_others() -> None:
    other = replace(RUN, id=AttemptId("c", "2", 1))
    known, _ = seen_so_far(look(2.0, attempts=[RUN, other], accounting="down"))
    over = replace(RUN, state=AttemptState.FAILED, end_s=99.0)
    after, events = changes(known, replace(look(100.0, attempts=[over], nodes=[]), only=frozenset("1")))
    assert kinds(events) == [AttemptEnded]
    assert (list(after.running), after.unseen, after.missing) == ([other.id], {"accounting": "down"}, {})


def test_the_rest_of_an_array_is_gone_once_its_last_task_has_started() -> None:
    rest = replace(JOB, job_id="7", state=JobState.PENDING)
    task = replace(JOB, job_id="7_3", state=JobState.PENDING)
    known, events = seen_so_far(look(2.0, jobs=[rest], attempts=[]), look(3.0, jobs=[task], attempts=[]))
    assert events == [JobChanged(3.0, task), JobGone(3.0, rest)]
    assert set(known.jobs) == {"7_3"}


def test_a_job_that_is_no_longer_mentioned_is_not_left_as_it_was() -> None:
    waited = replace(JOB, job_id="2", state=JobState.HELD)
    known, events = seen_so_far(look(2.0, jobs=[JOB, waited]), look(3.0, jobs=[], attempts=[]))
    assert events == [JobChanged(3.0, replace(waited, state=JobState.CANCELLED, reason=GONE))]
    assert set(known.jobs) == {"1"}  # how it ended is not known yet
    known, events = changes(known, look(60.0, jobs=[], attempts=[]))
    assert events[-1] == JobChanged(60.0, replace(JOB, state=JobState.FAILED))
    assert known.jobs == {}


def test_a_node_that_was_taken_out_of_the_cluster_is_not_counted_any_more() -> None:
    one, two = Node("n1", NodeState.UP), Node("n2", NodeState.UP)
    known, _ = changes(Known(), Observation("c", 1.0, nodes=(one, two)))
    blind, _ = changes(known, Observation("c", 2.0, unseen={"controller": "away"}))
    assert set(blind.nodes) == {"n1", "n2"}
    partial, _ = changes(known, Observation("c", 2.0, only=frozenset({"1"})))
    assert set(partial.nodes) == {"n1", "n2"}
    after, events = changes(known, Observation("c", 2.0, nodes=(one,)))
    assert (set(after.nodes), events) == ({"n1"}, [NodeGone(2.0, "c", "n2")])
    back, events = changes(after, Observation("c", 3.0, nodes=(one, two)))
    assert (set(back.nodes), events) == ({"n1", "n2"}, [NodeChanged(3.0, "c", two)])


def test_of_a_job_that_its_manager_has_forgotten_no_node_is_to_blame() -> None:
    """A controller that lost its latest state does not know jobs that run; their nodes may be down meanwhile."""
    down = replace(UP, state=NodeState.DOWN)
    known, _ = seen_so_far(look(2.0), look(10.0, jobs=[], attempts=[], nodes=[down]))
    _, events = changes(known, look(40.0, jobs=[], attempts=[], nodes=[down]))
    (end,) = [event for event in events if isinstance(event, AttemptEnded)]
    assert (end.attempt.state, end.attempt.failed_nodes, end.job) == (AttemptState.LOST, (), None)
