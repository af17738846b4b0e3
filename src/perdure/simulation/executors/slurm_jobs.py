"""Jobs of the site's Slurm, each a Dask worker, as an executor for a sweep."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import ClusterError, ConfigError, PerdureError
from perdure.model.table import JobTable
from perdure.simulation.executors.dask_workers import client_of, encrypted, first_line, quiet, run_on
from perdure.simulation.sweep import Runs, Setting, SweepCase

if TYPE_CHECKING:
    from dask_jobqueue import SLURMCluster

_NAME = "--workers slurm"
_SUBMIT_S = 60.0  # in which Slurm has given its jobs ids
_ASKED = {"cores": 1, "memory": "4GB"}  # of each job, where Dask's settings do not say


@dataclass(frozen=True, slots=True)
class SlurmJobs:
    """Jobs of the site's Slurm, each a worker. What they ask for is in Dask's own settings, ``jobqueue.slurm``."""

    jobs: int

    def runs(self, tables: Sequence[JobTable], setting: Setting, wanted: Sequence[SweepCase]) -> Runs:
        """See `SweepExecutor.runs`. Raises `ClusterError` where Slurm refuses the jobs, or they end too early."""

        def no_worker(for_s: float) -> None:
            if not _in_queue([worker.job_id for worker in list(cluster.workers.values())], for_s):
                fix = f"Their logs are in {logs}; DASK_JOBQUEUE__SLURM__WALLTIME=08:00:00 gives them 8 hours"
                raise ClusterError(_NAME, "all jobs of the sweep ended before it did", fix)

        with _logs() as logs, quiet(), _slurm_cluster(logs) as cluster:
            _must_be_taken(cluster.job_script())
            cluster.scale(jobs=min(self.jobs, len(wanted)))
            with client_of(cluster, _NAME) as client:
                yield from run_on(client, _NAME, (tables, setting), wanted, no_worker)


@contextmanager
def _logs() -> Iterator[Path]:
    """A folder for what jobs print, which stays where something went wrong."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perdure" / f"whatif-{os.getpid()}"
    told = False
    try:
        yield folder
    except PerdureError:
        told = folder.is_dir() and any(folder.iterdir())
        raise
    finally:
        if not told:
            shutil.rmtree(folder, ignore_errors=True)


def _slurm_cluster(logs: Path) -> SLURMCluster:
    """A scheduler in this process, and a recipe for jobs: one worker a core, for simulations share no core."""
    import dask
    from distributed.security import Security

    with _own_interrupt():
        from dask_jobqueue import SLURMCluster

    settings = dask.config.get("jobqueue.slurm", {})
    asked = {name: settings.get(name) or value for name, value in _ASKED.items()}
    options = {"dashboard": False, "dashboard_address": ":0", **(settings.get("scheduler-options") or {})}
    try:
        return SLURMCluster(
            **asked,
            processes=settings.get("processes") or asked["cores"],
            log_directory=str(logs),
            security=Security() if encrypted() else None,
            scheduler_options=options,
        )
    except (OSError, RuntimeError, TypeError, ValueError) as err:
        raise ConfigError(
            _NAME, f"Dask refuses its settings ({first_line(err)})", "Fix jobqueue.slurm in them"
        ) from err


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Whatever Ctrl-C did, it does again afterwards: dask-jobqueue has it end the process, by being imported."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _must_be_taken(script: str) -> None:
    """Ask Slurm whether it would take such a job: Dask itself only logs a refusal. Raises `ClusterError`."""
    try:
        asked = subprocess.run(
            ["sbatch", "--test-only"], input=script, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ClusterError(_NAME, f"sbatch does not run here ({first_line(err)})", "Run this where Slurm is") from err
    if asked.returncode:
        fix = "Set what its jobs ask for, such as DASK_JOBQUEUE__SLURM__QUEUE (the partition) or __ACCOUNT"
        said = asked.stderr.strip().removeprefix("sbatch: error: ").split("\n")[0]
        raise ClusterError(_NAME, f"Slurm refuses the job ({said})", fix)


def _in_queue(job_ids: Sequence[str | None], for_s: float) -> bool:
    """Whether any of these jobs runs or waits; one that has no id yet is about to. True where Slurm does not say."""
    known = [job_id for job_id in job_ids if job_id]
    if len(known) < len(job_ids) and for_s < _SUBMIT_S:
        return True
    if not known:
        return False
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", "--format=%i", f"--jobs={','.join(known)}"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return True
    if asked.returncode:
        return "Invalid job id" not in asked.stderr
    return bool(asked.stdout.strip())
