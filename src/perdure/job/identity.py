"""Which start of which job a process belongs to, and which task of it that process is: read from its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.errors import ConfigError
from perdure.job.fence import FENCE_DIR, FENCE_TOKEN
from perdure.job.processes import mark_of, topmost

FENCE_JOB = "PERDURE_FENCE_JOB"
SLURM_JOB, RESTART_COUNT = "SLURM_JOB_ID", "SLURM_RESTART_COUNT"
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")  # under mpirun Slurm's is its script's
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


@dataclass(frozen=True, slots=True)
class Start:
    """Which start of which job this is.

    Where the incarnation is only a restart count, `name` says what is known of the start here, shared by a step's
    ranks or by all that one batch script starts; `start_s` is the instant in which it began, where that is known too.
    """

    job_id: str
    incarnation: int
    name: str
    directory: Path
    token: int | None = None  # claimed already, by a launcher around this one
    cluster: str = ""
    start_s: int = 0  # seconds since the epoch

    @property
    def service_incarnation(self) -> int:
        """What the service knows this start by; 0 where it is not known here."""
        return self.start_s if self.name else self.incarnation


@dataclass(frozen=True, slots=True)
class Task:
    """One process of a start. A rank is None where the environment does not name it."""

    node: str  # the resource manager's name of the machine
    host: str
    pid: int
    rank: int | None = None
    local_rank: int | None = None


def identify(environment: Mapping[str, str], workdir: Path) -> Start:
    """Read from a task's environment which start it belongs to.

    The incarnation is ``PERDURE_INCARNATION``, or for Slurm ``SLURM_JOB_START_TIME``, or where that is too old to say
    so the restart count: then the `srun` that started the task, or else the batch script, tells starts apart, until
    `perdure.job.starts` knows better. Variables of a launcher in another job, inherited by submitting from within, are
    passed over.

    Raises `ConfigError` outside of a job and for values that are not numbers.
    """
    job_id = job_of(environment)
    if not job_id:
        what = "neither PERDURE_JOB_ID nor SLURM_JOB_ID is set"
        raise ConfigError("perdure exec", what, "Run it inside a job")
    incarnation, name = _incarnation(environment)
    cluster = _cluster(environment)
    launcher_job = environment.get(FENCE_JOB, job_id)
    directory = environment.get(FENCE_DIR) if launcher_job == job_id else None
    token = environment.get(FENCE_TOKEN) if launcher_job == job_id and directory else None
    return Start(
        job_id=job_id,
        incarnation=incarnation,
        name=name,
        directory=Path(workdir, directory or Path(".perdure", cluster, job_id)).absolute(),
        token=_number(FENCE_TOKEN, token) if token else None,
        cluster=cluster,
    )


def job_of(environment: Mapping[str, str]) -> str:
    """The job that a process with this environment belongs to; "" outside of one."""
    return environment.get("PERDURE_JOB_ID") or environment.get(SLURM_JOB) or ""


def service_job_of(environment: Mapping[str, str]) -> str:
    """The service's name of that job: a task of one of Slurm's arrays goes by the array's number and its own."""
    job, array = job_of(environment), environment.get("SLURM_ARRAY_JOB_ID")
    if array and job == environment.get(SLURM_JOB):
        return f"{array}_{environment.get('SLURM_ARRAY_TASK_ID', '')}"
    return job


def task_of(environment: Mapping[str, str]) -> Task:
    """Which task of its start this process is."""
    host = os.uname().nodename
    return Task(
        node=environment.get("SLURMD_NODENAME") or host.partition(".")[0],
        host=host,
        pid=os.getpid(),
        rank=_first_number(environment, RANK_VARIABLES),
        local_rank=_first_number(environment, _LOCAL_RANKS),
    )


def _incarnation(environment: Mapping[str, str]) -> tuple[int, str]:
    for variable in ("PERDURE_INCARNATION", "SLURM_JOB_START_TIME"):
        if value := environment.get(variable):
            return _number(variable, value), ""
    count = _number(RESTART_COUNT, environment.get(RESTART_COUNT) or "0")
    srun = [environment.get(name, "") for name in ("SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURM_STEP_ID")]
    return count, ":".join(srun) if all(srun) else _script(environment)


def _script(environment: Mapping[str, str]) -> str:
    """What all that one batch script starts on its machine has in common: the script's own process."""
    variable = "PERDURE_JOB_ID" if environment.get("PERDURE_JOB_ID") else SLURM_JOB
    return mark_of(topmost(variable, job_of(environment))) or os.urandom(16).hex()


def _cluster(environment: Mapping[str, str]) -> str:
    """The cluster whose job it is; "" where that is not said. Numbers of jobs repeat among clusters."""
    variable = "PERDURE_CLUSTER" if environment.get("PERDURE_JOB_ID") else "SLURM_CLUSTER_NAME"
    name = environment.get(variable, "")
    if name in (".", "..") or "/" in name:
        raise ConfigError(variable, f"{name[:80]!r} is not a name", "Leave it as the resource manager has set it")
    return name


def _number(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(variable, f"{text!r} is not a whole number", "Leave it as the resource manager has set it")
    return int(text)


def _first_number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    texts = (environment.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isascii() and text.isdecimal()), None)
