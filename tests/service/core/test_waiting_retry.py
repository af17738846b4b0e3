"""A retry that waits in the queue, and what becomes of its nodes meanwhile."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest

from perdure.model.actions import Comment, Exclude
from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.service.core.messages import Act, Noted
from perdure.service.core.settings import ControllerSettings
from tests.copying import replace
from tests.service.core.test_controller import FAILED, JOB, NODES, ONE, TRANSIENT, Run

WAITS = replace(JOB, state=JobState.PENDING, restarts=1, excluded=("n2",), eligible_s=3700.0)


def waiting_retry(job: Job = WAITS) -> Run:
    """A job whose retry away from n2 waits in the queue."""
    run = Run(ControllerSettings(mark="abc123"))
    run.look(3611.0, [JOB], [FAILED])
    run.judge(TRANSIENT, now=3612.0)
    run.look(3620.0, [replace(WAITS, excluded=())], [FAILED])  # put back, and not changed yet
    run.look(3621.0, [job], [FAILED])
    run.effects.clear()
    return run


def said(run: Run) -> Any:
    return run.state.cases["1"].failure.decision.told


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"excluded": ()}, "it may run on any node"),
        ({"excluded": ("n2", "n4")}, "it is kept off n2, n4"),
        ({"excluded": (), "required": ("n2",)}, "it must run on n2"),
    ],
)
def test_where_it_goes_is_said_anew_once_somebody_changes_its_nodes(changed: Mapping[str, Any], words: str) -> None:
    run = waiting_retry()
    assert "changed since" not in said(run)  # what we do ourselves is said already
    run.look(3630.0, [replace(WAITS, **changed)], [FAILED])
    assert said(run).endswith(f"; its nodes were changed since, {words}")
    assert said(run).startswith("connection lost: retry away from n2")
    (act,) = [effect for effect in run.effects if isinstance(effect, Act)]
    assert isinstance(act.action, Comment)
    assert words in act.action.comment
    assert [effect for effect in run.effects if isinstance(effect, Noted)]
    run.look(3640.0, [replace(WAITS, excluded=("n3",))], [FAILED])
    assert said(run).endswith("; its nodes were changed since, it is kept off n3")
    assert said(run).count("changed since") == 1


OTHERS_OUT = tuple(
    node if node.name == "n2" else replace(node, state=NodeState.DRAINED, since_s=3650.0) for node in NODES
)


def given_back(run: Run) -> list[Any]:
    return [effect.action for effect in run.effects if isinstance(effect, Act)]


def test_it_gets_back_the_node_it_was_kept_off_once_no_other_has_been_in_service_for_long() -> None:
    run = waiting_retry()
    run.look(3999.0, [WAITS], [FAILED], OTHERS_OUT)
    assert given_back(run) == []
    run.look(4001.0, [WAITS], [FAILED], OTHERS_OUT)
    (lift,) = given_back(run)
    assert isinstance(lift, Exclude)
    assert (lift.attempt, lift.exclude, lift.lift) == (ONE, (), ("n2",))
    assert "no other node is in service, so it may run on n2 again" in said(run)
    assert "n2 again" in lift.comment
    run.look(4002.0, [WAITS], [FAILED], OTHERS_OUT)  # not carried out yet
    run.look(4010.0, [replace(WAITS, excluded=())], [FAILED], OTHERS_OUT)
    assert given_back(run) == [lift]  # once, and nobody else did that
    assert "changed since" not in said(run)


@pytest.mark.parametrize("left_s", [*permutations((1.0, 3650.0, 3900.0))])
@pytest.mark.parametrize("eligible_s", [3700.0, 4000.0])
def test_of_several_the_last_that_left_counts_and_the_instant_at_which_it_could_have_started(
    left_s: tuple[float, ...], eligible_s: float
) -> None:
    job = replace(WAITS, eligible_s=eligible_s)
    run, since = waiting_retry(job), iter(left_s)
    out = tuple(n if n.name == "n2" else replace(n, state=NodeState.DOWN, since_s=next(since)) for n in NODES)
    due_s = max(*left_s, eligible_s) + 300.0
    run.look(due_s - 1.0, [job], [FAILED], out)
    assert given_back(run) == []
    run.look(due_s, [job], [FAILED], out)
    assert [action.lift for action in given_back(run)] == [("n2",)]


def test_a_node_of_another_partition_that_leaves_late_keeps_it_waiting_no_longer() -> None:
    job = replace(WAITS, partition="a")
    run, out = waiting_retry(job), tuple(replace(node, partitions=("a",)) for node in OTHERS_OUT)
    run.look(4001.0, [job], [FAILED], (*out, Node("n9", NodeState.DOWN, since_s=4000.0, partitions=("b",))))
    assert [action.lift for action in given_back(run)] == [("n2",)]


@pytest.mark.parametrize("eligible_s", [3700.0, None])
def test_where_the_others_are_gone_from_the_cluster_it_gets_its_node_back_once_it_has_waited(
    eligible_s: float | None,
) -> None:
    job = replace(WAITS, eligible_s=eligible_s)
    run, left = waiting_retry(job), tuple(node for node in NODES if node.name == "n2")
    run.look(3999.0, [job], [FAILED], left)
    assert given_back(run) == []
    run.look(4001.0, [job], [FAILED], left)
    assert [action.lift for action in given_back(run)] == ([] if eligible_s is None else [("n2",)])


@pytest.mark.parametrize("node_count", [1, 2, 3])
@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_too_few_are_fewer_than_it_needs_and_enough_with_what_it_gets_back(node_count: int, left: int) -> None:
    job = replace(WAITS, node_count=node_count)
    run, others = waiting_retry(job), [node for node in NODES if node.name != "n2"]
    out = (NODES[1], *others[:left], *(replace(node, state=NodeState.DOWN, since_s=1.0) for node in others[left:]))
    run.look(9000.0, [job], [FAILED], out)
    assert [action.lift for action in given_back(run)] == ([("n2",)] if left + 1 == node_count else [])


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (WAITS, (*OTHERS_OUT[:3], NODES[3])),  # another will do, however busy it is
        (WAITS, tuple(replace(node, state=NodeState.DRAINED, since_s=0.0) for node in NODES)),  # it would not help
        (WAITS, tuple(replace(node, since_s=None) for node in OTHERS_OUT)),  # who knows since when
        (replace(WAITS, excluded=("n1",)), OTHERS_OUT),  # its owner's
        (replace(WAITS, state=JobState.HELD), OTHERS_OUT),
        (replace(WAITS, required=("n3",)), OTHERS_OUT),
        (replace(WAITS, eligible_s=8900.0), OTHERS_OUT),
        (
            replace(WAITS, partition="a"),
            tuple(replace(node, partitions=("a",)) for node in (Node("n9", NodeState.UP),)),
        ),
    ],
)
def test_what_it_was_kept_off_stays_so_otherwise(job: Job, nodes: tuple[Node, ...]) -> None:
    run = waiting_retry(job)
    run.look(9000.0, [job], [FAILED], nodes)
    assert not [action for action in given_back(run) if isinstance(action, Exclude)]


def test_nor_does_it_get_back_a_node_whose_hardware_its_log_shows_broken() -> None:
    run = waiting_retry()
    case = run.state.cases["1"]
    broken = replace(case.failure, verdict=replace(TRANSIENT, hardware="Xid 79"))
    run.state = replace(run.state, cases={"1": replace(case, failure=broken)})
    run.look(9000.0, [WAITS], [FAILED], OTHERS_OUT)
    assert given_back(run) == []
