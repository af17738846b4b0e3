"""What a job waits for: which nodes keep it from starting, and in words."""

import pytest

from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.service.core.waiting import MOST_NAMED, blocked_by, in_words

JOB = Job("c", "1", "train", "ada", JobState.PENDING, 0.0, gpus=8)


@pytest.mark.parametrize(("more", "end"), [(0, "DIMM"), (1, "; and 1 more"), (3, "; and 3 more")])
def test_of_many_nodes_some_are_named_and_the_others_counted(more: int, end: str) -> None:
    nodes = [Node(f"n{number}", NodeState.DOWN, "DIMM") for number in range(MOST_NAMED + more)]
    said = in_words(nodes, {})
    assert said.endswith(end)
    assert said.count("DIMM") == MOST_NAMED


@pytest.mark.parametrize(
    ("wanted", "partitions", "is_blocked"),
    [("", ("b",), True), ("a", (), True), ("a", ("a", "b"), True), ("a,b", ("b",), True), ("a", ("b",), False)],
)
def test_a_node_that_is_down_is_waited_for_where_the_job_may_run_on_it(
    wanted: str, partitions: tuple[str, ...], is_blocked: bool
) -> None:
    down = Node("n1", NodeState.DOWN, gpus=8, partitions=partitions)
    job = Job("c", "1", "train", "ada", JobState.PENDING, 0.0, wanted, gpus=8, reason="Resources")
    assert bool(blocked_by(job, [down])) is is_blocked
