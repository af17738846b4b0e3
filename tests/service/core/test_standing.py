"""How a cluster stands in the list of all clusters: each number counts what its name says, and nothing else."""

from perdure.coordination.chain import restored
from perdure.coordination.record import ExceptionOutcome, ExceptionRecord, ExceptionState, Scope, Subject
from perdure.model.jobs import Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import MANAGER, Known
from perdure.service.core.case import ControllerState
from perdure.service.core.standing import ClusterStanding, standing_of


def record(name: str, state: ExceptionState, outcome: ExceptionOutcome = ExceptionOutcome.OPEN) -> ExceptionRecord:
    return ExceptionRecord(name, "node.disk", 0, Scope.LOCAL, Subject("c"), 0.0, state=state, outcome=outcome)


def test_a_cluster_stands_as_its_latest_look_and_its_exceptions_say() -> None:
    states = JobState.RUNNING, JobState.PENDING, JobState.HELD, JobState.FAILED, JobState.COMPLETED
    nodes = NodeState.UP, NodeState.DRAINED, NodeState.DOWN
    known = Known(
        jobs={str(n): Job("c", str(n), "train", "ada", state, 0.0) for n, state in enumerate(states)},
        nodes={str(n): Node(str(n), state) for n, state in enumerate(nodes)},
        unseen={"accounting": "it does not answer"},
    )
    records = (
        record("waits for a person", ExceptionState.ESCALATED),
        record("a person saw to it", ExceptionState.ESCALATED, ExceptionOutcome.CLOSED),
        record("has an owner", ExceptionState.HANDLED),
        record("is asked about", ExceptionState.IN_CHAIN),
    )
    state = ControllerState("c", known, chain=restored(records, (), {}))
    assert standing_of(state) == ClusterStanding(running=1, waiting=2, nodes=3, nodes_out=2, escalated=1)


def test_a_cluster_whose_manager_does_not_answer_is_silent() -> None:
    assert standing_of(ControllerState("c", Known(unseen={MANAGER: "it does not answer"}))).is_silent
