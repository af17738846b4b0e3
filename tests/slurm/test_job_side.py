"""``perdure exec`` in a real job: it learns from Slurm when the allocation ends, and on which node it is."""

import json
import sys
import time

import pytest

from perdure.job import report, tracks
from perdure.job.report import Reason

pytestmark = pytest.mark.slurm

SAVES = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
time.sleep(120)
"""


def test_the_program_is_told_before_walltime(quiet_cluster):
    """Slurm 22.05 sets no SLURM_JOB_END_TIME: squeue is asked. The shell of the job does not listen."""
    fence = quiet_cluster.output / "fence"
    program = quiet_cluster.output / "saves.py"
    program.write_text(SAVES)
    launcher = f"{sys.executable} -m perdure exec --signal-before 52:USR1 --"
    script = f"export PERDURE_FENCE_DIR={fence}\n{launcher} srun {sys.executable} {program}\n"
    begun_s = time.time()
    job = quiet_cluster.submit(script, "--time=1", "-w", "node2")
    ended = quiet_cluster.wait(job, lambda record: record["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"))
    assert ended["JobState"] == "COMPLETED"
    (task,) = tracks.tasks(fence)
    breath = report.read(task.last_breath)
    assert (breath.reason, breath.exit_code, breath.job_id, breath.node) == (Reason.WALLTIME, 0, job, "node2")
    assert breath.walltime_end_s - begun_s == pytest.approx(60, abs=30)
    assert breath.walltime_end_s - 52 <= breath.warned_s < breath.walltime_end_s


def test_steps_and_commands_of_one_start_do_not_fence_each_other(quiet_cluster):
    """Slurm 22.05 names no start in their environment; on two nodes, side by side and one after the other."""
    fence, begun_s = quiet_cluster.output / "fence-of-steps", time.time()
    launcher = f"{sys.executable} -m perdure exec -- sleep"
    script = (
        f"export PERDURE_FENCE_DIR={fence}\n"
        f"{launcher} 4 & a=$!\n"
        f"srun -n1 -N1 --exact {launcher} 4 & b=$!\n"
        f"srun -n1 -N1 --exact --relative=1 {launcher} 4 & c=$!\n"
        "wait $a; a=$?; wait $b; b=$?; wait $c; c=$?\n"
        f"srun -N2 -n2 {launcher} 0; d=$?\n"
        f"{launcher} 0\n"
        "echo codes $a $b $c $d $?\n"
    )
    job = quiet_cluster.submit(script, "-N2", "--ntasks-per-node=2", f"--output={quiet_cluster.output}/steps.log")
    quiet_cluster.wait(job, lambda record: record["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"))
    assert "codes 0 0 0 0 0" in (quiet_cluster.output / "steps.log").read_text()
    assert {report.read(task.last_breath).token for task in tracks.tasks(fence)} == {1}
    assert json.loads((fence / "claims" / "1").read_text())["start_s"] >= begun_s - 1
