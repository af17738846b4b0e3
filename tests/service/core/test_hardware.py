"""Broken hardware that the logs of two users show on one node."""

from typing import Any

import pytest

from perdure.coordination.chain_state import Chain
from perdure.coordination.messages import ExceptionRaised
from perdure.coordination.record import RETURNED, ExceptionOutcome, ExceptionRecord, ExceptionState, Scope, Subject
from perdure.model.actions import Drain, Undrain
from perdure.model.events import ActionEnded
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Observation
from perdure.retry.history import Fleet, NodeTrouble
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.hardware import broken_nodes
from perdure.service.core.messages import Act, ChainInput, Ended, Event, Judged, Looked
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.rows import exception_row
from perdure.triage.evidence.rules import own_rules
from perdure.triage.judge import judge
from tests.copying import replace

NODES = tuple(Node(f"n{i}", NodeState.UP) for i in range(1, 5))
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
SOFT = "torch.cuda.OutOfMemoryError: CUDA out of memory."


class Run:
    def __init__(self) -> None:
        self.state, self.effects, self.jobs = ControllerState("c"), [], {}

    def feed(self, event: Event) -> None:
        self.state, effects = step(self.state, event, ControllerSettings())
        self.effects += effects

    def look(self, now: float, attempts: list[Any] | tuple[()] = (), nodes: tuple[Node, ...] = NODES) -> None:
        self.feed(Looked(Observation("c", now, tuple(self.jobs.values()), tuple(attempts), nodes)))

    def fails(self, job_id: str, user: str, line: str, now: float, nodes: tuple[str, ...] = ("n2",)) -> None:
        self.jobs[job_id] = Job("c", job_id, f"job{job_id}", user, JobState.FAILED, 0.0)
        attempt = Attempt(
            AttemptId("c", job_id, 1), AttemptState.FAILED, nodes, now - 60, now, exit_code=1, gpus=1, user=user
        )
        self.look(now, [attempt])
        self.feed(Judged(now + 1, attempt.id, judge(f"step 10\n{line}\n".encode(), attempt)))

    def drains(self) -> list[Any]:
        return [e.action for e in self.effects if isinstance(e, Act) and isinstance(e.action, Drain)]

    def raised(self) -> list[Any]:
        chain = self.state.chain
        return [r for r in (*chain.open.values(), *chain.ended.values()) if r.type == "node.hardware"]


@pytest.fixture
def run() -> Run:
    return Run()


def test_two_users_within_an_hour_take_the_node_out_of_service(run: Run) -> None:
    run.fails("1", "ada", XID, 1000.0)
    assert run.drains() == []
    run.fails("2", "bob", ECC, 2000.0)
    assert [drain.node for drain in run.drains()] == ["n2"]
    (record,) = run.raised()
    assert record.detected_by == "perdure"
    assert record.note == "the logs of jobs 1 of ada and 2 of bob show broken hardware on n2"
    assert [XID in record.evidence[0], ECC in record.evidence[1]] == [True, True]
    run.fails("3", "eve", ECC, 2010.0)
    assert len(run.raised()) == 1  # one more says nothing new


@pytest.mark.parametrize("job_id", ["1", "7"])
def test_a_message_that_goes_from_node_to_node_says_nothing_of_one(run: Run, job_id: str) -> None:
    run.fails("1", "ada", ECC, 1000.0, ("n3",))
    run.fails(job_id, "ada", ECC, 1100.0, ("n2",))
    run.fails("2", "bob", ECC, 1200.0, ("n2",))
    assert run.drains() == []
    run.fails("3", "eve", XID, 1300.0, ("n2",))  # a second one who speaks of this node alone
    assert [drain.node for drain in run.drains()] == ["n2"]


@pytest.mark.parametrize(
    "second",
    [
        ("2", "ada", ECC, 2000.0),  # one user alone never does
        ("2", "bob", SOFT, 2000.0),
        ("2", "bob", ECC, 6000.0),
        ("2", "bob", ECC, 2000.0, ("n3",)),
        ("2", "bob", ECC, 2000.0, ("n1", "n2")),  # which of the two?
    ],
    ids=["same user", "no hardware", "too late", "elsewhere", "a gang"],
)
def test_less_does_not(run: Run, second: tuple[Any, ...]) -> None:
    run.fails("1", "ada", XID, 1000.0)
    run.fails(*second)
    assert run.raised() == []


def test_a_gangs_log_that_names_the_node_counts(run: Run) -> None:
    run.fails("1", "ada", XID, 1000.0)
    run.fails("2", "bob", f"n2: {XID}", 2000.0, ("n1", "n2"))
    assert [drain.node for drain in run.drains()] == ["n2"]


def test_another_exception_of_the_node_says_nothing_of_its_hardware(run: Run) -> None:
    subject = Subject("c", nodes=("n2",))
    run.fails("1", "ada", XID, 1000.0)
    slow = ExceptionRecord("slow", "node.degraded", 2, Scope.LOCAL, subject, 1500.0, detected_by="operator:root")
    run.feed(ChainInput(1500.0, (ExceptionRaised(slow),)))
    run.fails("2", "bob", ECC, 2000.0)
    assert len(run.raised()) == 1


def test_in_shadow_mode_a_person_is_asked_until_the_node_is_out_of_service(run: Run) -> None:
    run.fails("1", "ada", XID, 1000.0)
    run.fails("2", "bob", ECC, 2000.0)
    (drain,) = run.drains()
    run.feed(Ended((ActionEnded(2005.0, drain.key, None, "shadow", "shadow mode: not carried out"),)))
    (record,) = run.raised()
    assert record.state is ExceptionState.ESCALATED
    assert exception_row(record, "")["is_open"]
    run.fails("3", "ada", XID, 2006.0)
    run.fails("4", "bob", ECC, 2007.0)
    assert len(run.raised()) == 1  # the person knows of it
    run.look(2010.0, nodes=tuple(replace(n, state=NodeState.DRAINED) if n.name == "n2" else n for n in NODES))
    (record,) = run.raised()
    assert record.outcome is ExceptionOutcome.RECOVERED
    assert not exception_row(record, "")["is_open"]


@pytest.mark.parametrize("episode", ["", "7", "c:node.hot:n2:7"])
def test_a_fault_whose_node_an_order_returned_is_over_and_says_who_gave_the_order(run: Run, episode: str) -> None:
    order = drained(run).undo()
    order = replace(order, episode=episode) if episode else order
    run.look(2015.0)
    undrain = ActionEnded(2016.0, order.key, None, "done", "in service", "operator:eve")
    run.feed(Ended((undrain,)))
    run.look(2030.0)
    run.look(2040.0)
    (record,) = run.raised()
    assert record.outcome is ExceptionOutcome.RECOVERED
    assert [a.value for a in record.annotations if a.key == RETURNED] == ["returned to service by operator:eve"]


@pytest.mark.parametrize(("kind", "status"), [(Drain, "done"), (Undrain, "shadow"), (Undrain, "superseded")])
def test_a_fault_whose_node_nobody_returned_goes_on(run: Run, kind: type[Drain | Undrain], status: str) -> None:
    order = drained(run)
    order = order if kind is Drain else order.undo()
    run.feed(Ended((ActionEnded(2016.0, order.key, None, status, "as it is"),)))
    assert run.raised()[0].outcome is ExceptionOutcome.OPEN


def test_a_fault_whose_node_came_back_by_itself_is_over_at_the_second_look(run: Run) -> None:
    drained(run)
    run.look(2020.0)
    assert run.raised()[0].outcome is ExceptionOutcome.OPEN
    run.look(2030.0)
    (record,) = run.raised()
    assert record.outcome is ExceptionOutcome.RECOVERED
    assert "does not tell by whom" in next(a.value for a in record.annotations if a.key == RETURNED)


def test_what_a_job_said_of_a_node_is_over_with_the_nodes_return_too(run: Run) -> None:
    run.jobs["1"] = Job("c", "1", "train", "ada", JobState.RUNNING, 0.0)
    run.look(1000.0)
    about = Subject("c", "1", nodes=("n2",))
    fault = ExceptionRecord("x", "gpu.xid79", 1, Scope.LOCAL, about, 1000.0, detected_by="operator:root")
    run.feed(ChainInput(1000.0, (ExceptionRaised(fault),)))
    (drain,) = run.drains()
    run.feed(Ended((ActionEnded(1005.0, drain.key, None, "done", "read back: drained"),)))
    run.look(1010.0, nodes=tuple(replace(n, state=NodeState.DRAINED) if n.name == "n2" else n for n in NODES))
    outcomes = []
    for now in (1020.0, 1030.0):
        run.look(now)
        outcomes.append(run.state.chain.ended["x"].outcome)
    assert outcomes == [ExceptionOutcome.OPEN, ExceptionOutcome.RECOVERED]


def test_a_fault_of_two_nodes_is_over_once_both_are_back(run: Run) -> None:
    run.look(1000.0)
    about = Subject("c", nodes=("n2", "n3"))
    fault = ExceptionRecord("x", "gpu.xid79", 1, Scope.LOCAL, about, 1000.0, detected_by="operator:root")
    run.feed(ChainInput(1000.0, (ExceptionRaised(fault),)))
    drains = run.drains()
    run.feed(Ended(tuple(ActionEnded(1005.0, each.key, None, "done", "read back: drained") for each in drains)))
    out = {node.name: replace(node, state=NodeState.DRAINED) for node in NODES}
    run.look(1010.0, nodes=tuple(out[n.name] if n.name in about.nodes else n for n in NODES))
    run.feed(Ended((ActionEnded(1016.0, drains[0].undo().key, None, "done", "in service", "operator:eve"),)))
    for now in (1018.0, 1019.0):  # one of them is back
        run.look(now, nodes=tuple(out[n.name] if n.name == "n3" else n for n in NODES))
    outcomes = [run.state.chain.ended["x"].outcome]
    for now in (1020.0, 1030.0):
        run.look(now)
        outcomes.append(run.state.chain.ended["x"].outcome)
    assert outcomes == [ExceptionOutcome.OPEN, ExceptionOutcome.OPEN, ExceptionOutcome.RECOVERED]


def test_a_fault_of_two_nodes_that_waits_for_a_person_is_dealt_with_once_neither_takes_new_work(run: Run) -> None:
    run.look(1000.0)
    about = Subject("c", nodes=("n2", "n3"))
    fault = ExceptionRecord("x", "gpu.xid79", 1, Scope.LOCAL, about, 1000.0, detected_by="operator:root")
    run.feed(ChainInput(1000.0, (ExceptionRaised(fault),)))
    shadow = "shadow mode: not carried out"
    run.feed(Ended(tuple(ActionEnded(1005.0, each.key, None, "shadow", shadow) for each in run.drains())))
    needs_a_person = [run.state.chain.ended["x"].needs_a_person]
    for now, out in ((1010.0, about.nodes[:1]), (1020.0, about.nodes)):
        run.look(now, nodes=tuple(replace(n, state=NodeState.DRAINED) if n.name in out else n for n in NODES))
        needs_a_person.append(run.state.chain.ended["x"].needs_a_person)
    assert needs_a_person == [True, True, False]


def drained(run: Run) -> Any:
    """The node is out of service, as it was read back and seen."""
    run.fails("1", "ada", XID, 1000.0)
    run.fails("2", "bob", ECC, 2000.0)
    (drain,) = run.drains()
    run.feed(Ended((ActionEnded(2005.0, drain.key, None, "done", "read back: drained"),)))
    run.look(2010.0, nodes=tuple(replace(n, state=NodeState.DRAINED) if n.name == "n2" else n for n in NODES))
    assert run.raised()[0].outcome is ExceptionOutcome.OPEN
    return drain


def test_which_rules_show_broken_hardware_is_said_in_the_rules() -> None:
    hard = [rule.cause for rule in own_rules().rules if rule.cause.hard]
    assert {"xid-reset", "gpu-ecc", "gpu-link-or-lost", "local-disk"} <= {cause.name for cause in hard}
    assert all(cause.infrastructure for cause in hard)


def test_a_read_only_file_system_is_hardware_by_the_kernels_word_alone() -> None:
    attempt = Attempt(AttemptId("c", "1", 1), AttemptState.FAILED, ("n1",), 0.0, 60.0, exit_code=1)
    paths = ("/tmp", "/data", "/usr/local/lib/python3.10/site-packages", "/home/alice/tmp")
    told = [f"OSError: [Errno 30] Read-only file system: '{path}/x'\n" for path in paths]
    assert [judge(line.encode(), attempt).hardware for line in told] == [""] * len(told)
    assert judge(b"EXT4-fs (nvme0n1p2): Remounting filesystem read-only\n", attempt).hardware


@pytest.mark.parametrize(("since_s", "is_shown"), [(1500.0, False), (2500.0, True)])
def test_what_was_shown_before_it_was_raised_last_is_dealt_with(since_s: float, is_shown: bool) -> None:
    def raised_at(at_s: float) -> ExceptionRecord:
        subject = Subject("c", nodes=("n2",))
        return ExceptionRecord(
            f"x{at_s}", "node.hardware", 1, Scope.LOCAL, subject, at_s, state=ExceptionState.HANDLED,
            outcome=ExceptionOutcome.RECOVERED,
        )  # fmt: skip

    troubles = tuple(
        NodeTrouble(since_s + at, job_id, user, "gpu", True, hardware=f"Xid 79 of {job_id}")
        for at, (job_id, user) in enumerate((("1", "ada"), ("2", "bob")))
    )
    attempt = Attempt(AttemptId("c", "2", 1), AttemptState.FAILED, ("n2",), 0.0, 60.0)
    for instants in ((1000.0, 2000.0), (2000.0, 1000.0)):
        chain = Chain(ended={record.id: record for record in map(raised_at, instants)})
        found = list(broken_nodes(Fleet(troubles={"n2": troubles}), chain, "c", attempt, "perdure", 3000.0))
        assert bool(found) is is_shown


def test_each_node_that_is_shown_broken_is_told() -> None:
    troubles = {
        node: tuple(
            NodeTrouble(2000.0, f"{user} on {node}", user, "gpu", True, hardware=f"Xid 79 of {user} on {node}")
            for user in ("ada", "bob")
        )
        for node in ("n1", "n2", "n3")
    }
    gang = Attempt(AttemptId("c", "2", 1), AttemptState.FAILED, ("n1", "n2"), 0.0, 60.0)
    found = broken_nodes(Fleet(troubles=troubles), Chain(), "c", gang, "perdure", 3000.0)
    assert [record.subject.nodes for record in found] == [("n1",), ("n2",)]
