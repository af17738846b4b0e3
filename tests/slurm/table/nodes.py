"""Nodes that fail, are drained, come back."""

from __future__ import annotations

import time
from collections.abc import Iterator

from perdure.coordination.folding import FRESH_S
from tests.slurm.cluster import await_
from tests.slurm.table.programs import DISK_FULL, ECC, LOST_PEER, PASSED_CHECK_AND_KEY_ERROR
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

NODES = Group("nodes")


def _killed_once(stage: Stage, which: str = "") -> str:
    mark = f"{stage.mark}{which}"
    return f"""
srun -n 2 --kill-on-bad-exit=1 sh -c '[ $SLURM_PROCID = 1 ] && [ ! -e {mark} ] && touch {mark} && kill -9 $$; sleep 2'
"""


@NODES.row(alone=True, quick=True)
def given_up_by_its_operator(stage: Stage) -> Iterator[None]:
    """The operator raises `node.unreachable`: the node is set down, its job goes elsewhere."""
    site = stage.site
    job = stage.submit(f"{stage.once()}sleep 600", "-w", "node3")
    yield
    stage.await_begun(job)
    name = site.raise_("node.unreachable", nodes=["node3"], note="power is cut")
    try:
        stage.recovered(job)
    finally:
        stage.cluster.return_node("node3")
    assert stage.states(job) == ["NODE_FAIL", "COMPLETED"]
    assert site.record(name)["state"] == "handled"
    stage.check()


@NODES.row(alone=True)
def dies(stage: Stage) -> Iterator[None]:
    """The node's power is cut."""
    job = stage.submit(f"{stage.once()}sleep 600", "-w", "node2")
    yield
    stage.await_begun(job)
    stage.cluster.fail_node("node2")
    try:
        stage.recovered(job, 180)
    finally:
        stage.cluster.return_node("node2")
    assert stage.states(job) == ["NODE_FAIL", "COMPLETED"]
    stage.check()


@NODES.row(alone=True)
def freezes_and_thaws(stage: Stage) -> Iterator[None]:
    """The node freezes, its job starts elsewhere; it thaws."""
    job = stage.submit(f"{stage.once('sleep 4; exit 0')}sleep 600", "-w", "node2")
    yield
    stage.await_begun(job)
    stage.cluster.freeze_node("node2")
    try:
        await_("a second start", lambda: stage.cluster.job(job).get("Restarts") == "1", 120)
    finally:
        stage.cluster.return_node("node2")
    stage.recovered(job, 180)
    stage.check()


@NODES.row(alone=True)
def prolog_fails(stage: Stage) -> Iterator[None]:
    """The node's prolog fails: Slurm drains the node and holds the job."""
    with stage.cluster.failing_prolog("node1"):
        job = stage.submit("echo done", "-w", "node1")
        yield
        stage.done(job, 90)
    assert stage.cluster.ends(job)[-1]["NodeList"] != "node1"
    assert [action["kind"] for action in stage.acts(job)].count("release") == 1
    stage.check()


@NODES.row(alone=True)
def epilog_fails(stage: Stage) -> Iterator[None]:
    """The node's epilog fails after a job that went well: Slurm drains the node, the job is left alone."""
    script = stage.folder / "epilog"
    script.write_text('#!/bin/sh\n[ "$SLURMD_NODENAME" != node4 ]\n')
    script.chmod(0o755)
    with stage.cluster.configured(f"Epilog={script}"):
        stage.cluster.run("scontrol", "reconfigure")
        job = stage.submit("true", "-w", "node4")
        yield
        await_("a drained node", lambda: stage.cluster.node_states()["node4"].startswith("drain"), 90)
        stage.left_alone(job)
    stage.cluster.run("scontrol", "reconfigure")
    stage.cluster.return_node("node4")


@NODES.row(alone=True)
def two_faults_at_once(stage: Stage) -> Iterator[None]:
    """A node is given up while a rank of another job dies; a third job spans both nodes."""
    lost = stage.submit(f"{stage.once()}sleep 600", "-w", "node1")
    died = stage.submit(_killed_once(stage, "-2"), "-w", "node2", "-n", "2")
    both = stage.submit(
        f"[ -e {stage.mark}-3 ] && exit 0; touch {stage.mark}-3; sleep 600", "-w", "node1,node2", "-N", "2"
    )
    yield
    for job in (lost, both):
        stage.site.await_known(job)
    stage.cluster.run("scontrol", "update", "nodename=node1", "state=down", "reason=tested")
    try:
        for job in (lost, died, both):
            stage.recovered(job, 180)
    finally:
        stage.cluster.return_node("node1")
    stage.check()
    assert all(len(stage.cluster.ends(job)) == 2 for job in (lost, died, both))


@NODES.row(alone=True)
def set_down_by_its_operator(stage: Stage) -> Iterator[None]:
    """`state=down` with a person's reason, twice under jobs: they go elsewhere, other retries may go there."""
    cluster = stage.cluster
    yield
    for times in ("first", "second"):
        lost = stage.submit(
            f"[ -e {stage.mark}-{times} ] && exit 0; touch {stage.mark}-{times}; sleep 600", "-w", "node3"
        )
        stage.site.await_known(lost)
        cluster.run("scontrol", "update", "nodename=node3", "state=down", "reason=moves to another rack")
        try:
            stage.recovered(lost, 180)
        finally:
            cluster.return_node("node3")
    other = stage.submit(stage.once() + LOST_PEER)
    stage.recovered(other, 150)
    failed_on = cluster.ends(other)[0]["NodeList"]
    (requeue,) = stage.requeues(other)  # nodes that other rows let die may be avoided, too
    assert failed_on in requeue["exclude"]
    assert failed_on == "node3" or "node3" not in requeue["exclude"]
    stage.check()


@NODES.row(alone=True)
def drained_under_a_job(stage: Stage) -> Iterator[None]:
    """The operator drains the node while its job runs and then fails: the drain is not fought."""
    job = stage.submit(f"{stage.once()}sleep 6\n{LOST_PEER}", "-w", "node4")
    yield
    stage.site.await_known(job)
    stage.cluster.run("scontrol", "update", "nodename=node4", "state=drain", "reason=memory")
    stage.recovered(job, 150)
    states = stage.cluster.node_states()
    assert states["node4"].startswith("drain")
    stage.cluster.run("scontrol", "update", "nodename=node4", "state=resume")
    assert stage.cluster.ends(job)[-1]["NodeList"] != "node4"


@NODES.row(alone=True)
def hard_evidence_of_two_users(stage: Stage) -> Iterator[None]:
    """Jobs of two users on one node log uncorrectable ECC errors: it is drained as soon as both are judged."""
    first = stage.submit(stage.once() + ECC, "-w", "node2")
    second = stage.submit(f"[ -e {stage.mark}-2 ] && exit 0; touch {stage.mark}-2\n{ECC}", "-w", "node2", user="nobody")
    stage.main = second
    yield
    await_("a drained node", lambda: stage.cluster.node_states()["node2"].startswith("drain"), 120,
           lambda: stage.site.told(second))  # fmt: skip
    drains = [action for action in stage.site.ask("/actions") if action["node"] == "node2"]
    assert [drain["kind"] for drain in drains] == ["drain"]
    for job in (first, second):
        stage.recovered(job, 150)
    stage.cluster.return_node("node2")


@NODES.row(quick=True)
def own_disk_full(stage: Stage) -> Iterator[None]:
    """`/tmp` of a node is full: the job goes to another one."""
    job = stage.submit(stage.once() + DISK_FULL)
    yield
    stage.recovered(job)
    first, second = (row["NodeList"] for row in stage.cluster.ends(job))
    assert first != second


@NODES.row(quick=True)
def passed_health_checks(stage: Stage) -> Iterator[None]:
    """Jobs of two users on one node print a passed GPU check, then a KeyError: both are stopped, no node is blamed."""
    jobs = [stage.submit(PASSED_CHECK_AND_KEY_ERROR, "-w", "node3", user=user) for user in (None, "nobody")]
    yield
    for job in jobs:
        stage.stopped(job)
        assert [verdict["category"] for verdict in stage.verdicts(job)] == ["index"]
    assert not stage.cluster.node_states()["node3"].startswith("drain")


@NODES.row(alone=True)
def raised_again_after_a_resume(stage: Stage) -> Iterator[None]:
    """An operator resumes a drained node, and the same fault is raised again: it is drained again."""
    site, cluster = stage.site, stage.cluster
    stage.submit("true")
    yield
    site.raise_("node.health", nodes=["node4"], note="fan", severity=1)
    await_("drained", lambda: cluster.node_states()["node4"].startswith("drain"))
    time.sleep(FRESH_S + 2)  # an equal fault sooner after what was read back is one with it
    cluster.run("scontrol", "update", "nodename=node4", "state=resume")
    await_("in service", lambda: cluster.node_states()["node4"] == "idle")
    name = site.raise_("node.health", nodes=["node4"], note="fan", severity=1)
    await_("drained again", lambda: cluster.node_states()["node4"].startswith("drain"), 60,
           lambda: f"; {site.record(name)}")  # fmt: skip
    cluster.return_node("node4")


@NODES.row(alone=True)
def no_kill(stage: Stage) -> Iterator[None]:
    """`--no-kill`: one of two nodes is lost, the job goes on with the other."""
    job = stage.submit("sleep 25", "-N", "2", "--no-kill", "-w", "node1,node2")
    yield
    stage.site.await_known(job)
    stage.cluster.run("scontrol", "update", "nodename=node2", "state=down", "reason=tested")
    try:
        ended = stage.cluster.wait(job, lambda fields: fields["JobState"] not in ("RUNNING", "COMPLETING"), 120)
    finally:
        stage.cluster.return_node("node2")
    assert stage.requeues(job) == [], (ended, stage.site.told(job))


@NODES.row(alone=True)
def rebooted(stage: Stage) -> Iterator[None]:
    """`scontrol reboot` of a node whose job then fails: it is put back on another."""
    job = stage.submit(f"{stage.once()}sleep 6\n{LOST_PEER}", "-w", "node4")
    yield
    stage.site.await_known(job)
    stage.cluster.run("scontrol", "reboot", "ASAP", "nextstate=resume", "node4")
    stage.recovered(job, 150)
    stage.cluster.reboot_node("node4")
    stage.check()


@NODES.row(alone=True)
def powered_down(stage: Stage) -> Iterator[None]:
    """Power saving puts an idle node to sleep: that is not a fault, and no job of its failed."""
    more = "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=5\nSuspendTimeout=5\nResumeTimeout=60"
    with stage.cluster.configured(f"{more}\nSuspendExcNodes=node[2-4]"):
        job = stage.submit("true", "-w", "node1")
        yield
        stage.done(job)
        await_("a node asleep", lambda: _sleeps(stage.cluster.run("scontrol", "show", "node", "node1")), 60)
        time.sleep(4)
        about = [r for r in stage.site.ask("/exceptions") if r["type"].startswith("node.")]
        assert not any("node1" in record["subject"]["node"] for record in about if record["time"] > stage.begun_s)
        assert stage.acts(job) == []
        stage.cluster.fail_node("node1")
        stage.cluster.run("scontrol", "update", "nodename=node1", "state=power_up", check=False)
    stage.cluster.return_node("node1")


def _sleeps(said: str) -> bool:
    return "POWERED_DOWN" in said or "POWERING_DOWN" in said


@NODES.row(alone=True)
def no_other_node_is_left(stage: Stage) -> Iterator[None]:
    """All nodes but the one that its retry was kept off are drained while it waits: it gets that one back."""
    cluster = stage.cluster
    job = stage.submit(stage.once() + LOST_PEER)
    yield
    stage.site.await_done(job, "requeue")
    cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now+20")
    (failed,) = stage.full(job)["attempts"][0]["nodes"]
    others = [node for node in cluster.nodes if node != failed]
    for node in others:
        cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=new fans")
    try:
        stage.recovered(job, 180)
        assert cluster.ends(job)[-1]["NodeList"] == failed
        assert "no other node is in service" in stage.says(job)
    finally:
        for node in others:
            cluster.return_node(node)
