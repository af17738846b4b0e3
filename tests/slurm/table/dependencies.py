"""Jobs that wait for a job that fails and is tried again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

from tests.slurm.cluster import await_
from tests.slurm.table.programs import LOST_PEER, SHAPE
from tests.slurm.table.row import Group
from tests.slurm.table.stage import Stage

DEPENDENCIES = Group("dependencies")
NEVER = "DependencyNeverSatisfied"


def _order(stage: Stage, first: str, second: str) -> None:
    """The second job started after the first one's last attempt had ended."""
    last = stage.cluster.ends(first)[-1]
    (start,) = [row for row in stage.cluster.ends(second) if row["Start"].isdecimal()]
    assert last["State"] == "COMPLETED"
    assert int(start["Start"]) >= int(last["End"]), (last, start)


def _fails_once(stage: Stage, *options: str) -> str:
    return stage.submit(f"{stage.once('sleep 2; exit 0')}sleep 2\n{LOST_PEER}", *options)


@DEPENDENCIES.row(quick=True)
def afterok(stage: Stage) -> Iterator[None]:
    """`afterok`: it starts after the retry that passed."""
    job = _fails_once(stage)
    waits = stage.submit("true", f"--dependency=afterok:{job}")
    yield
    stage.recovered(job)
    stage.done(waits)
    _order(stage, job, waits)


@DEPENDENCIES.row(quick=True)
def afterany(stage: Stage) -> Iterator[None]:
    """`afterany`: it does not see the failure that is tried again."""
    job = _fails_once(stage)
    waits = stage.submit("true", f"--dependency=afterany:{job}")
    yield
    stage.recovered(job)
    stage.done(waits)
    _order(stage, job, waits)


@DEPENDENCIES.row(quick=True)
def afternotok(stage: Stage) -> Iterator[None]:
    """`afternotok`: it never starts, since the job passed in the end."""
    job = _fails_once(stage)
    waits = stage.submit("true", f"--dependency=afternotok:{job}")
    yield
    stage.recovered(job)
    time.sleep(4)
    assert stage.cluster.job(waits)["JobState"] == "PENDING"
    stage.cluster.run("scancel", waits)


@DEPENDENCIES.row()
def singleton(stage: Stage) -> Iterator[None]:
    """`singleton`: the next job of that name may start while this one completes; it never runs beside the retry."""
    job = _fails_once(stage, "-J", "lonely")
    waits = stage.submit("sleep 8", "--dependency=singleton", "-J", "lonely")
    yield
    stage.recovered(job)
    stage.done(waits)
    ran = [(int(row["Start"]), int(row["End"])) for each in (job, waits) for row in stage.cluster.ends(each)]
    assert len(ran) == 3
    assert all(end <= start for (_, end), (start, _) in pairwise(sorted(ran))), ran


@DEPENDENCIES.row()
def aftercorr(stage: Stage) -> Iterator[None]:
    """`aftercorr`: each task starts after its own counterpart's retry."""
    script = f"[ $SLURM_ARRAY_TASK_ID = 2 ] || exit 0\n{stage.once()}sleep 2\n{LOST_PEER}"
    array = stage.submit(script, "--array=1-2")
    waits = stage.submit("true", "--array=1-2", f"--dependency=aftercorr:{array}")
    stage.main = f"{array}_2"
    yield
    stage.recovered(f"{array}_2", 180)
    await_(
        "both tasks over",
        lambda: all(stage.states(f"{waits}_{task}")[-1:] == ["COMPLETED"] for task in (1, 2)),
        90,
        lambda: stage.cluster.run("squeue"),
    )


@DEPENDENCIES.row()
def killed_on_invalid_dependency(stage: Stage) -> Iterator[None]:
    """`afterok` with `--kill-on-invalid-dep=yes`: it is not cancelled for a failure that is tried again."""
    job = _fails_once(stage)
    waits = stage.submit("true", f"--dependency=afterok:{job}", "--kill-on-invalid-dep=yes")
    yield
    stage.recovered(job)
    stage.done(waits)
    _order(stage, job, waits)


@DEPENDENCIES.row(quick=True)
def after_a_stop(stage: Stage) -> Iterator[None]:
    """A failure that is not tried again: `afterany` runs, `afterok` never starts, as without Perdure."""
    job = stage.submit(f"sleep 1\n{SHAPE}")
    runs = stage.submit("true", f"--dependency=afterany:{job}")
    waits = stage.submit("true", f"--dependency=afterok:{job}")
    yield
    stage.stopped(job)
    stage.done(runs)
    stage.cluster.wait(waits, lambda fields: fields.get("Reason") == NEVER)
    stage.cluster.run("scancel", waits)


@DEPENDENCIES.row(alone=True)
def afterok_without_the_hook(stage: Stage) -> Iterator[None]:
    """`afterok` where no hook is installed: Slurm gives it up, and it gets its dependency back after the requeue."""
    with stage.cluster.configured("EpilogSlurmctld=/bin/true"):
        job = _fails_once(stage)
        waits = stage.submit("true", f"--dependency=afterok:{job}")
        yield
        stage.recovered(job)
        stage.done(waits)
        _order(stage, job, waits)
