"""``perdure why --report`` of what a real sacct prints after failures were put back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.traces.sacct_columns import EXPORT
from tests.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm


def test_a_failure_that_was_put_back_is_counted(quiet_cluster: SlurmCluster, tmp_path: Path) -> None:
    fails = '[ -n "$SLURM_RESTART_COUNT" ] && exit 0; exit 3'
    failed = quiet_cluster.submit(fails, "--requeue")
    killed = quiet_cluster.submit(fails.replace("exit 3", "kill -9 $$"), "--requeue")
    stopped = quiet_cluster.submit('[ -n "$SLURM_RESTART_COUNT" ] && exit 0; sleep 600', "--requeue")
    for job_id in (failed, killed):
        quiet_cluster.wait(job_id, lambda job: job["JobState"] == "FAILED")
    quiet_cluster.wait(stopped, lambda job: job["JobState"] == "RUNNING")
    ids = (failed, killed, stopped)
    quiet_cluster.run("scontrol", "requeue", ",".join(ids))
    for job_id in ids:
        quiet_cluster.wait(job_id, lambda job: job["JobState"] == "COMPLETED")
    quiet_cluster.await_accounting()
    argv = EXPORT.partition("TZ=UTC ")[2].replace("--allusers", f"--jobs={','.join(ids)}").split(" ")
    (tmp_path / "sacct.txt").write_text(quiet_cluster.run(*argv))
    report = (sys.executable, "-m", "perdure", "why", "--report", str(tmp_path / "sacct.txt"), "--json")
    found = json.loads(subprocess.run(report, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert (found["total"]["trials"], found["total"]["saved"], found["put_back"]) == (2, 2, 1)
