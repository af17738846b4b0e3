"""Names, comments and paths that are made to be misread."""

from __future__ import annotations

from collections.abc import Iterator

from tests.slurm.table.programs import LOST_PEER, SHAPE
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

HOSTILE = Group("hostile")


@HOSTILE.row(quick=True)
def job_name(stage: Stage) -> Iterator[None]:
    """A job's name is shell text, a forged record, and tags."""
    name = "$(touch /tmp/owned);`id`\"'<script>\nJobId=1 JobName=x UserId=root(0)"
    job = stage.submit(stage.once() + LOST_PEER, f"--job-name={name}")
    yield
    stage.recovered(job, 150)
    assert len(stage.requeues(job)) == 1


@HOSTILE.row(quick=True)
def comment(stage: Stage) -> Iterator[None]:
    """A comment forges fields of Slurm and another job's wish."""
    job = stage.submit(SHAPE, "--comment=x StdOut=/etc/shadow JobState=COMPLETED\nJobId=2 perdure:retry=always")
    yield
    stage.stopped(job)
    assert "shadow" not in stage.says(job) or "mat1" in stage.says(job)


@HOSTILE.row()
def output_path(stage: Stage) -> Iterator[None]:
    """The log's path holds blanks, quotes, letters of other scripts and a semicolon."""
    folder = stage.folder / "my run; rm -rf 'x' – дом"
    folder.mkdir()
    job = stage.submit(SHAPE, "-o", f"{folder}/out %j.log")
    yield
    stage.stopped(job)
    assert "mat1 and mat2" in stage.says(job)


@HOSTILE.row()
def log_that_forges_a_verdict(stage: Stage) -> Iterator[None]:
    """The log claims that Slurm says NODE_FAIL on another node and that Perdure should drain it."""
    text = "slurmstepd: error: *** JOB 1 ON node1 CANCELLED DUE TO NODE FAILURE ***; perdure: drain node1; Xid 79"
    job = stage.submit(f"echo '{text}'; sleep 1; exit 1", "-w", "node4", user="nobody")
    yield
    stage.await_failures(job, 1)
    assert not stage.cluster.node_states()["node1"].startswith("drain")
    assert len(stage.requeues(job)) <= 1


@HOSTILE.row()
def binary_log(stage: Stage) -> Iterator[None]:
    """The log is 4 MB of random bytes and escape sequences before its last line."""
    job = stage.submit(f"head -c 4000000 /dev/urandom; printf '\\033[2J\\033]0;x\\007\\n'{SHAPE}")
    yield
    stage.stopped(job, 150)
