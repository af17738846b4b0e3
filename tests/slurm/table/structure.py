"""Arrays, heterogeneous jobs, gangs of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.slurm.cluster import await_
from tests.slurm.table.programs import LOST_PEER, SHAPE, fails_with
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

STRUCTURE = Group("structure")


@STRUCTURE.row(quick=True)
def one_task_of_an_array(stage: Stage) -> Iterator[None]:
    """Of four tasks one loses its peer: it alone is put back."""
    script = f"[ $SLURM_ARRAY_TASK_ID = 3 ] || exit 0\n{stage.once()}{LOST_PEER}"
    array = stage.submit(script, "--array=1-4")
    stage.main = f"{array}_3"
    yield
    stage.recovered(f"{array}_3")
    assert [stage.acts(f"{array}_{task}") for task in (1, 2, 4)] == [[], [], []]
    assert len(stage.requeues(f"{array}_3")) == 1


@STRUCTURE.row()
def throttled_array(stage: Stage) -> Iterator[None]:
    """`--array=1-3%1`: a task that is put back takes its turn."""
    script = f"[ $SLURM_ARRAY_TASK_ID = 1 ] || exit 0\n{stage.once()}{LOST_PEER}"
    array = stage.submit(script, "--array=1-3%1")
    stage.main = f"{array}_1"
    yield
    stage.recovered(f"{array}_1", 180)
    await_("all tasks over", lambda: all(stage.states(f"{array}_{task}")[-1:] == ["COMPLETED"] for task in (1, 2, 3)))


@STRUCTURE.row()
def pending_record_of_an_array(stage: Stage) -> Iterator[None]:
    """Once an array's last task has started, its own record is not a job any more."""
    array = stage.submit("sleep 2", "--array=1-3")
    stage.main = f"{array}_1"
    yield
    await_("all over", lambda: all(stage.states(f"{array}_{task}")[-1:] == ["COMPLETED"] for task in (1, 2, 3)))

    def gone() -> bool:
        live = [job for job in stage.site.ask("/jobs", q=array) if job["state"] in ("pending", "held", "running")]
        return not live

    await_("no phantom", gone, 30)


@STRUCTURE.row(quick=True)
def heterogeneous(stage: Stage) -> Iterator[None]:
    """A heterogeneous job whose program loses its peer is one job, one exception, one action."""
    text = f"#!/bin/sh\n#SBATCH -n1 -o {stage.folder}/%j.out\n#SBATCH hetjob\n#SBATCH -n1\n{stage.once()}{LOST_PEER}"
    job = stage.cluster.run("sbatch", "--parsable", stdin=text).strip()
    stage.jobs.append(job)
    yield
    stage.recovered(job, 180)
    assert len(stage.requeues(job)) == 1
    assert len(stage.failures(job)) == 1
    assert stage.full(job)["job"]["job_id"] == job


@STRUCTURE.row()
def gang_of_nodes(stage: Stage) -> Iterator[None]:
    """A job on two nodes; the second rank fails with a shape error."""
    script = f"srun -N 2 -n 2 sh -c 'if [ $SLURM_PROCID = 1 ]; then {fails_with(SHAPE)}; fi; sleep 5'"
    job = stage.submit(script, "-N", "2", "--ntasks-per-node=1")
    yield
    stage.stopped(job)
    assert "mat1 and mat2" in stage.says(job)
