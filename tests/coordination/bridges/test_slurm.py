"""What Slurm's hooks drop, and lines of scontrol and squeue."""

from typing import Any

import pytest

from perdure.coordination.bridges.bridged import BridgeContext
from perdure.coordination.bridges.registry import read
from perdure.coordination.bridges.slurm import MAX_UNREADABLE, of_node
from perdure.coordination.record import LEAST, ExceptionRecord, Scope, Transient
from perdure.errors import InputError
from perdure.model.nodes import Node, NodeState
from tests.coordination.bridges.samples import NOW, SLURM


def records(text: str) -> tuple[ExceptionRecord, ...]:
    bridged = read("slurm", text, "c", NOW)
    assert bridged.skipped == 0
    return bridged.records


def end(state: str, exit_code: str = "0:0", **more: Any) -> str:
    said = {"JOBID": "7", "JOBSTATE": state, "EXITCODE": exit_code, "START": "100", "END": "110", "NODES": "n1", **more}
    return "perdure-event 1 end\n" + "".join(f"{key}={value}\n" for key, value in said.items())


def node(state: str, reason: str = "") -> str:
    return f"NodeName=n7 State={state} CoresPerSocket=1" + (
        f" Reason={reason} [root@2025-11-21T08:00:00]" if reason else ""
    )


def test_the_sample_holds_an_end_two_nodes_a_drain_and_a_held_job() -> None:
    ended, first, second, drained, held = records(SLURM)
    assert (ended.type, ended.subject.job_id, ended.incarnation) == ("node.down", "5_3", 1763709100)
    assert ended.subject.nodes == ("n1", "n2")
    assert (first.type, first.subject.nodes, second.subject.nodes) == ("node.down", ("n1",), ("n2",))
    assert (drained.type, drained.subject.nodes, drained.time_s) == ("launcher.transient", ("n3",), 1763712000.0)
    assert (held.type, held.transient, held.subject.job_id) == ("launcher.transient", Transient.YES, "9")


@pytest.mark.parametrize(
    ("state", "exit_code", "expected"),
    [
        ("FAILED", "0:53", "launcher.transient"),
        ("FAILED", "1:0", "process.exit"),
        ("FAILED", "127:0", "launcher.permanent"),
        ("FAILED", "0:9", "process.signal"),
        ("TIMEOUT", "0:0", "job.timeout"),
        ("OUT_OF_MEMORY", "0:125", "app.oom"),
        ("PREEMPTED", "0:0", "job.preempted"),
        ("BOOT_FAIL", "0:0", "launcher.transient"),
        ("CANCELLED", "0:15", "job.cancelled"),
        ("COMPLETED", "0:0", None),
        ("REQUEUED", "0:0", None),
    ],
)
def test_ends(state: str, exit_code: str, expected: str | None) -> None:
    assert [record.type for record in records(end(state, exit_code))] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("DOWN*", "Not responding", "node.unreachable"),
        ("DOWN", "", "node.down"),
        ("DOWN", "Node unexpectedly rebooted", "node.down"),
        ("IDLE*", "", "node.unreachable"),
        ("MIXED+FAIL", "", "node.failing"),
        ("IDLE+DRAIN", "Prolog error", "launcher.transient"),
        ("IDLE+DRAIN", "Kill task failed", "node.unkillable"),
        ("IDLE+DRAIN", "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off", "node.gpu.xid79"),
        ("IDLE+DRAIN", "xid 48", "node.gpu.xid48"),
        ("IDLE+DRAIN", "Low RealMemory (reported:1 < 100.00% of configured:2)", "node.memory"),
        ("IDLE+DRAIN", "gres/gpu count reported lower than configured (0 < 4)", "node.gpu"),
        ("IDLE+DRAIN", "/scratch is read-only", "node.disk"),
        ("IDLE+DRAIN", "maintenance until Friday", None),
        ("IDLE+DRAIN", "perdure: node.gpu.xid79 [perdure e-1]", None),
        ("DOWN+DRAIN", "Xid 79 [perdure e-1]", None),
        ("IDLE", "", None),
        ("IDLE+CLOUD+POWERED_DOWN", "", None),
    ],
)
def test_states_and_reasons_of_nodes(state: str, reason: str, expected: str | None) -> None:
    found = records(node(state, reason))
    assert [record.type for record in found] == ([expected] if expected else [])
    assert all(record.subject.nodes == ("n7",) for record in found)


def test_a_node_that_is_down_is_fatal_whatever_the_reason() -> None:
    (record,) = records(node("DOWN*", "Not responding"))
    assert (record.severity, record.note, record.time_s) == (0, "Not responding", 1763712000.0)


def test_a_node_that_is_up_again_clears() -> None:
    down, up = records(
        "".join(f"perdure-event 1 node\nEVENT={e}\nNODES=n1\nTIME={t}\n" for e, t in (("down", 1), ("up", 2)))
    )
    assert (down.severity, up.severity, up.type) == (0, LEAST, down.type)
    assert ("clears", "node.down@n1") in {(a.key, a.value) for a in up.annotations}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7|PENDING|JobHoldMaxRequeue|", "launcher.permanent"),
        ("7_2|FAILED|JobLaunchFailure|n1", "launcher.transient"),
        ("7|PENDING|Licenses|", "licence.short"),
        ("7|PENDING|PowerNotAvail|", "power.cap"),
        ("7|NODE_FAIL|NodeDown|n[1-2]", "node.down"),
        ("7|PENDING|Priority|", None),
        ("7|RUNNING|None|n1", None),
        ("7|PENDING|Resources|", None),
    ],
)
def test_reasons_of_jobs(line: str, expected: str | None) -> None:
    assert [record.type for record in records(line)] == ([expected] if expected else [])


def test_what_all_jobs_share_is_global() -> None:
    (record,) = records("7|PENDING|Licenses|")
    assert (record.scope, record.subject.resource, record.severity) == (Scope.GLOBAL, "licence", 5)


@pytest.mark.parametrize(
    "text",
    [
        "perdure-event 1 node\nEVENT=down\nNODES=$(reboot)\nTIME=1",
        "perdure-event 1 node\nEVENT=exploded\nNODES=n1\nTIME=1",
        "perdure-event 1 node\nEVENT=down\nNODES=n[1-99999999]\nTIME=1",
        "perdure-event 1 health\nNODE=n1\nEXIT=300\nTIME=1",
        "perdure-event 1 end\nJOBID=x\nEND=1",
        "perdure-event 1 end\nJOBID=7",
        "perdure-event 2 end\nJOBID=7\nEND=1",
        "NodeName= State=DOWN",
        "a|b|c|d",
        "$(id)|PENDING|Licenses|",
    ],
)
def test_what_makes_no_sense_is_left_out(text: str) -> None:
    bridged = read("slurm", text, "c", NOW)
    assert bridged.records == ()
    assert bridged.skipped >= 1


def test_another_text_is_refused() -> None:
    with pytest.raises(InputError, match="most of it is not Slurm's"):
        read("slurm", "lorem ipsum\n" * (MAX_UNREADABLE + 1), "c", NOW)


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (NodeState.DOWN, "", "node.down"),
        (NodeState.UNKNOWN, "", "node.unreachable"),
        (NodeState.DRAINED, "Prolog error", "launcher.transient"),
        (NodeState.DRAINING, "maintenance", None),
        (NodeState.UP, "", None),
    ],
)
def test_a_look_at_a_node_tells_the_same(state: NodeState, reason: str, expected: str | None) -> None:
    record = of_node(Node("n7", state, reason, since_s=1763712000.0), BridgeContext("slurm", "c", NOW))
    assert (record and record.type) == expected


def test_the_line_and_the_look_are_one_exception() -> None:
    seen = of_node(Node("n7", NodeState.DOWN, "broken", since_s=1763712000.0), BridgeContext("slurm", "c", NOW))
    assert [seen] == list(records("NodeName=n7 State=DOWN Reason=broken [root@1763712000]"))
