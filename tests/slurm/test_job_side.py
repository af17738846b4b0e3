"""``perdure exec`` in a real job: it learns from Slurm when the allocation ends, and on which node it is."""

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
    assert breath.walltime_end_s - begun_s == pytest.approx(60, abs=15)
    assert breath.walltime_end_s - 52 <= breath.warned_s < breath.walltime_end_s
