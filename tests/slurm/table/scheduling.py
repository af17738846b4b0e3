"""What a scheduler does to jobs: preemption, suspension, holds, reservations, licences."""

from __future__ import annotations

from collections.abc import Iterator

from tests.slurm.cluster import await_
from tests.slurm.table.programs import DISK_FULL, LOST_PEER
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

SCHEDULING = Group("scheduling")


def _qos(stage: Stage) -> None:
    stage.cluster.run("sacctmgr", "-i", "add", "qos", "low", check=False)
    stage.cluster.run("sacctmgr", "-i", "add", "qos", "high", "preempt=low", check=False)


@SCHEDULING.row(alone=True)
def preempted_and_requeued(stage: Stage) -> Iterator[None]:
    """Preemption by QOS with PreemptMode=REQUEUE: Slurm puts it back."""
    _qos(stage)
    with stage.cluster.configured("PreemptType=preempt/qos\nPreemptMode=REQUEUE"):
        job = stage.submit(f"{stage.once()}sleep 600", "--qos=low")
        yield
        stage.await_begun(job)
        winner = stage.submit("sleep 2", "--qos=high", "-N", "4", "--exclusive")
        record = stage.recovered(job, 150)
        stage.done(winner)
    assert record["verdicts"][-1]["component"] == "resource_manager"
    assert stage.states(job) == ["PREEMPTED", "COMPLETED"]
    assert stage.acts(job) == []
    stage.check()


@SCHEDULING.row(alone=True)
def preempted_and_cancelled(stage: Stage) -> Iterator[None]:
    """Preemption by QOS with PreemptMode=CANCEL: the job is over, and may be put back once, at no cost to budgets."""
    _qos(stage)
    with stage.cluster.configured("PreemptType=preempt/qos\nPreemptMode=CANCEL"):
        job = stage.submit(f"{stage.once()}sleep 600", "--qos=low")
        yield
        stage.await_begun(job)
        winner = stage.submit("sleep 2", "--qos=high", "-N", "4", "--exclusive")
        stage.done(winner)
        stage.await_failures(job, 1)
    assert len(stage.requeues(job)) <= 1
    stage.check()


@SCHEDULING.row(alone=True)
def preempted_in_its_grace_time(stage: Stage) -> Iterator[None]:
    """Preemption with GraceTime: `srun` ends by SIGTERM before Slurm ends the job; put back anywhere, at no cost."""
    _qos(stage)
    stage.cluster.run("sacctmgr", "-i", "modify", "qos", "low", "set", "gracetime=20")
    with stage.cluster.configured("PreemptType=preempt/qos\nPreemptMode=REQUEUE"):
        job = stage.submit(f"{stage.once()}srun -n 1 sleep 600", "--qos=low")
        yield
        stage.await_begun(job)
        winner = stage.submit("sleep 2", "--qos=high", "-N", "4", "--exclusive")
        stage.done(winner)
        stage.done(job, 150)
    stage.cluster.run("sacctmgr", "-i", "modify", "qos", "low", "set", "gracetime=0")
    assert "the job was preempted" in stage.says(job)
    assert all(not act["exclude"] for act in stage.acts(job))
    stage.check()


@SCHEDULING.row(alone=True)
def preempted_and_suspended(stage: Stage) -> Iterator[None]:
    """Preemption by partition with PreemptMode=SUSPEND,GANG: the job waits in memory and goes on."""
    with stage.cluster.configured("PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG"):
        job = stage.submit("sleep 15", "-N", "4", "--exclusive")
        yield
        stage.site.await_known(job)
        winner = stage.submit("sleep 3", "-p", "urgent", "-N", "4", "--exclusive")
        stage.done(winner)
        stage.done(job)
    stage.left_alone(job)


@SCHEDULING.row()
def suspended_by_its_operator(stage: Stage) -> Iterator[None]:
    """`scontrol suspend` and `resume`: no failure, no silence."""
    job = stage.submit(stage.at_the_gate)
    yield
    stage.site.await_known(job)
    stage.cluster.run("scontrol", "suspend", job)
    stage.cluster.wait(job, lambda fields: fields["JobState"] == "SUSPENDED")
    stage.cluster.run("scontrol", "resume", job)
    stage.gate.touch()
    stage.done(job)
    stage.left_alone(job)


@SCHEDULING.row()
def requeued_by_its_operator(stage: Stage) -> Iterator[None]:
    """`scontrol requeue` of a running job: a person's doing, and no failure."""
    job = stage.submit(f"{stage.once()}sleep 600")
    yield
    stage.await_begun(job)
    stage.cluster.run("scontrol", "requeue", job)
    stage.done(job)
    assert stage.acts(job) == []
    stage.check()


@SCHEDULING.row(quick=True)
def held_after_its_requeue(stage: Stage) -> Iterator[None]:
    """`scontrol requeuehold` of a running job by its operator: it stays held."""
    job = stage.submit(f"{stage.once()}sleep 600")
    yield
    stage.site.await_known(job)
    stage.cluster.run("scontrol", "requeuehold", job)
    stage.cluster.wait(job, lambda fields: fields["JobState"] == "PENDING" and fields["Priority"] == "0")
    stage.left_alone(job)
    assert stage.cluster.job(job)["Priority"] == "0"
    stage.cluster.run("scancel", job)


@SCHEDULING.row(alone=True)
def only_one_node(stage: Stage) -> Iterator[None]:
    """Only the node on which the job failed has the feature that it asks for (-C): it starts there again."""
    node = stage.cluster.nodes[1]
    stage.cluster.run("scontrol", "update", f"nodename={node}", "availablefeatures=bigmem")
    try:
        job = stage.submit(stage.once() + LOST_PEER, "-C", "bigmem")
        yield
        stage.recovered(job, 150)
        assert [act["state"] for act in stage.requeues(job)] == ["done"]
        assert "no other node has what it asks for" in stage.says(job)
    finally:
        stage.cluster.run("scontrol", "update", f"nodename={node}", "activefeatures=", "availablefeatures=")


@SCHEDULING.row(alone=True)
def one_of_several_partitions(stage: Stage) -> Iterator[None]:
    """`-p small,main`: it fails on the only node of the first partition, and is kept off it: the second has others."""
    stage.cluster.run("scontrol", "create", "partitionname=small", "nodes=node2", "prioritytier=9", "maxtime=60")
    try:
        waited = stage.submit(stage.once() + LOST_PEER, "-p", "small,main", "--hold")
        yield
        await_("a look at the queue", lambda: waited in [job["job_id"] for job in stage.site.ask("/jobs")])
        stage.cluster.run("scontrol", "release", waited)
        stage.recovered(waited, 150)
        at_once = stage.submit(
            f"#SBATCH -p small,main\n[ -e {stage.mark}-2 ] && exit 0\ntouch {stage.mark}-2\n{LOST_PEER}"
        )
        stage.recovered(at_once, 150)
        for job in (waited, at_once):
            assert stage.cluster.ends(job)[0]["NodeList"] == "node2"
            assert [act["exclude"] for act in stage.requeues(job)] == [["node2"]], stage.says(job)
    finally:
        stage.cluster.cancel_all()
        stage.cluster.run("scontrol", "delete", "partitionname=small")


@SCHEDULING.row()
def exclusion_that_is_lifted(stage: Stage) -> Iterator[None]:
    """`-x node3,node4`, and it fails on both others: the first of them is given back to it, what `-x` names is not."""
    count = f"echo x >>{stage.mark}; case $(wc -l <{stage.mark}) in 1) :;; 2) {DISK_FULL};; *) exit 0;; esac\n"
    job = stage.submit(count + LOST_PEER, "-x", "node3,node4")
    yield
    stage.recovered(job, 150)
    nodes = [row["NodeList"] for row in stage.cluster.ends(job)]
    assert sorted(nodes[:2]) == ["node1", "node2"]
    assert stage.cluster.job(job)["ExcNodeList"] in ("node3,node4", "node[3-4]")
    assert "retry on any node but node3, node4, since without" in stage.says(job)
    stage.check()


@SCHEDULING.row(alone=True)
def moved_to_where_it_failed(stage: Stage) -> Iterator[None]:
    """Its owner moves a waiting retry to a partition that has no node but the one it failed on: it starts there."""
    tiny = {node: f"tiny-{node}" for node in stage.cluster.nodes}  # made beforehand: a retry waits for some seconds
    for node, name in tiny.items():
        stage.cluster.run("scontrol", "create", f"partitionname={name}", f"nodes={node}", "maxtime=10", "state=up")
    try:
        job = stage.submit(stage.once() + LOST_PEER)
        yield
        stage.site.await_done(job, "requeue")
        failed_on = stage.cluster.ends(job)[0]["NodeList"]
        stage.cluster.run("scontrol", "update", f"jobid={job}", f"partition={tiny[failed_on]}", "timelimit=5")
        stage.recovered(job, 150)
        assert stage.cluster.job(job)["ExcNodeList"] == "(null)"
        assert "no other node has what it asks for" in stage.says(job)
    finally:
        stage.cluster.run("scancel", job, check=False)
        for name in tiny.values():
            stage.cluster.run("scontrol", "delete", f"partitionname={name}", check=False)


@SCHEDULING.row(alone=True)
def maintenance(stage: Stage) -> Iterator[None]:
    """A maintenance reservation of all nodes begins soon: the failed job is put back and waits for its end."""
    job = stage.submit(f"{stage.once()}sleep 3\n{LOST_PEER}", "--time=1")
    yield
    stage.site.await_known(job)
    made = ("starttime=now+20", "duration=1", "flags=maint,ignore_jobs", "nodes=ALL", "users=root")
    stage.cluster.run("scontrol", "create", "reservation", "reservationname=upkeep", *made)
    try:
        stage.await_failures(job, 1)
        assert len(stage.requeues(job)) == 1
    finally:
        stage.cluster.run("scontrol", "delete", "reservationname=upkeep", check=False)
    stage.recovered(job, 150)


@SCHEDULING.row(alone=True)
def maintenance_of_the_other_nodes(stage: Stage) -> Iterator[None]:
    """A maintenance reservation holds the only nodes that it could go to: it starts where it failed."""
    made = ("starttime=now", "duration=30", "flags=maint,ignore_jobs", "nodes=node3,node4", "users=root")
    stage.cluster.run("scontrol", "create", "reservation", "reservationname=upkeep", *made)
    try:
        job = stage.submit(f"{stage.once()}sleep 15\n{LOST_PEER}", "-N", "2")  # until a look has told of it
        yield
        stage.recovered(job, 150)
    finally:
        stage.cluster.run("scontrol", "delete", "reservationname=upkeep", check=False)
    (requeue,) = stage.requeues(job)
    assert requeue["exclude"] == []
    stage.check()


@SCHEDULING.row()
def licence(stage: Stage) -> Iterator[None]:
    """A job with a licence fails and is put back: it waits for the licence that another job has."""
    job = stage.submit(f"{stage.once()}sleep 2\n{LOST_PEER}", "-L", "pfs:3")
    takes = stage.submit("sleep 12", "-L", "pfs:3")
    yield
    stage.done(takes)
    stage.recovered(job, 150)
    assert len(stage.requeues(job)) == 1
