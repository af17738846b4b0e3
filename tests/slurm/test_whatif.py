"""`perdure whatif --workers slurm`: jobs of a real Slurm run the simulations, and none is left behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import require
from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm

HEADER = "job_id,submit_s,gpus,duration_s\n"


@pytest.fixture
def whatif(quiet_cluster: SlurmCluster, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Ask on a few jobs, where the cluster's tools are; what was printed, and the exit code."""
    try:
        import dask_jobqueue  # noqa: F401
    except ImportError:
        require("dask", False, "the optional part dask is not installed")
    (tmp_path / "jobs.csv").write_text(HEADER + "".join(f"j{n},{n},{1 + n % 4},50\n" for n in range(40)))

    def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "perdure", "whatif", "jobs.csv", "--cluster", "2x4", *words]
        home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        env = {**os.environ, **quiet_cluster.env, **home, "DASK_JOBQUEUE__SLURM__MEMORY": "500MB", **more}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False)

    return run


def test_jobs_of_slurm_give_the_answers_of_this_machine(
    quiet_cluster: SlurmCluster, whatif: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    words = "--policy", "fifo,srtf", "--placement", "random", "--seeds", "2", "--json", "--jobs-out"
    alone, spread = whatif(*words, "a.csv"), whatif(*words, "b.csv", "--workers", "slurm:2")
    assert (spread.returncode, spread.stderr) == (0, "")
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    runs = [[{**run, "sim_seconds": 0} for run in json.loads(ran.stdout)["runs"]] for ran in (alone, spread)]
    assert runs[0] == runs[1]
    assert not list((tmp_path / "cache").glob("perdure/whatif-*"))
    await_("no job left", lambda: not quiet_cluster.run("squeue", "--noheader", "--states=PENDING,RUNNING").strip())


def test_what_slurm_does_not_take_is_one_line_and_2(whatif: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    ran = whatif("--policy", "fifo", "--workers", "slurm", DASK_JOBQUEUE__SLURM__QUEUE="nonsense")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("perdure: --workers slurm: Slurm refuses the job (invalid partition specified: ")
    assert ran.stderr.count("\n") == 1


def test_jobs_that_cannot_run_are_not_waited_for(
    whatif: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    ran = whatif("--policy", "fifo", "--workers", "slurm:1", DASK_JOBQUEUE__SLURM__PYTHON="/nonsense/python")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("perdure: --workers slurm: all jobs of the sweep ended before it did. Their logs are ")
    (log,) = tmp_path.glob("cache/perdure/whatif-*/*.err")
    assert "/nonsense/python" in log.read_text()
