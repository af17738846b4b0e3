"""Who runs the simulations of a sweep, as a user names it: ``4``, ``dask://HOST:PORT``, ``slurm:8``."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from perdure.errors import ConfigError
from perdure.installation import need
from perdure.simulation.executors.processes import Processes
from perdure.simulation.sweep import SweepExecutor

MAX_WORKERS = 1024
_MOST_DIGITS = 4  # of MAX_WORKERS
_SLURM_JOBS = 4
_FIX = "Write a number of processes, such as 4, or dask://HOST:PORT, or slurm, or slurm:8 for 8 jobs"


def executor_named(text: str) -> SweepExecutor:
    """The executor of that name. Raises `ConfigError`, and `MissingExtra` without Dask."""
    kind, colon, count = text.partition(":")
    if text.startswith("dask://"):
        return _dask(text)
    if kind == "slurm":
        return _slurm(_number(text, count) if colon else _SLURM_JOBS)
    return Processes(_number(text, text))


def default_executor() -> SweepExecutor:
    """A process for each core that this one may use."""
    return Processes(processes_at_hand())


def processes_named(text: str) -> int:
    """For what runs on this machine alone. Raises `ConfigError`."""
    if not text.isdecimal():
        what = "a study runs in processes of this machine"
        raise ConfigError(f"--workers {text!r}", what, "Write a number, such as 4")
    return _number(text, text)


def processes_at_hand() -> int:
    """One for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _number(text: str, digits: str) -> int:
    if not digits.isdecimal() or len(digits) > _MOST_DIGITS or not 0 < int(digits) <= MAX_WORKERS:
        raise ConfigError(f"--workers {text[:80]!r}", f"not a number of workers up to {MAX_WORKERS}", _FIX)
    return int(digits)


def _dask(text: str) -> SweepExecutor:
    try:
        address = urlsplit(text)
        told = address.hostname and address.port and text == f"dask://{address.netloc}" and "@" not in text
    except ValueError:  # the port is not a number
        told = False
    if not told:
        raise ConfigError(f"--workers {text!r}", "not the address of a Dask scheduler", _FIX)
    need("dask", "whatif --workers")
    from perdure.simulation.executors.dask_workers import DaskWorkers

    return DaskWorkers(address.netloc)


def _slurm(jobs: int) -> SweepExecutor:
    need("dask", "whatif --workers")
    from perdure.simulation.executors.slurm_jobs import SlurmJobs

    return SlurmJobs(jobs)
