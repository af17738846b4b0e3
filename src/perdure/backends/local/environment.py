"""The environment of a task: what Perdure and the scripts written for Slurm expect to find."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.backends.local import paths
from perdure.backends.local.records import AttemptRecord, LocalJob

# Of the daemon's own environment only this is passed on: it may hold secrets.
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV")
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def task_environment(
    cluster: str, state_dir: Path, job: LocalJob, attempt: AttemptRecord, rank: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The variables of one task. The job's own win over the base, the cluster's over both.

    As with Slurm, ``SLURM_RESTART_COUNT`` is not set on the first run.
    """
    base = {name: inherited[name] for name in KEPT if name in inherited}
    theirs = {k: v for k, v in job.spec.env.items() if k != "SLURM_RESTART_COUNT"}
    ours = _perdure(cluster, state_dir, attempt, rank) | _slurm(job, attempt, rank) | _ranks(attempt, rank)
    return base | QUIET | theirs | ours


def _perdure(cluster: str, state_dir: Path, attempt: AttemptRecord, rank: int) -> dict[str, str]:
    return {
        "PERDURE_CLUSTER": cluster,
        "PERDURE_STATE": str(state_dir),
        "PERDURE_JOB_ID": attempt.job_id,
        "PERDURE_INCARNATION": str(attempt.incarnation),
        "PERDURE_NODE": attempt.nodes[rank],
        "PERDURE_RANK": str(rank),
        "PERDURE_WORLD_SIZE": str(len(attempt.nodes)),
        "PERDURE_FENCE_DIR": str(paths.fence(state_dir, attempt.job_id)),
    }


def _ranks(attempt: AttemptRecord, rank: int) -> dict[str, str]:
    gpus = attempt.devices[rank]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(attempt.nodes)),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20_000 + (int(attempt.job_id) * 31 + attempt.incarnation) % 12_000),
    }


def _slurm(job: LocalJob, attempt: AttemptRecord, rank: int) -> dict[str, str]:
    nodes, gpus = ",".join(attempt.nodes), attempt.devices[rank]
    variables = {
        "SLURM_JOB_ID": attempt.job_id,
        "SLURM_JOBID": attempt.job_id,
        "SLURM_JOB_NAME": job.spec.name,
        "SLURM_JOB_USER": job.spec.user,
        "SLURM_JOB_PARTITION": "main",
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(len(attempt.nodes)),
        "SLURM_NNODES": str(len(attempt.nodes)),
        "SLURM_NTASKS": str(len(attempt.nodes)),
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(rank),
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": attempt.nodes[rank],
        "SLURM_GPUS_ON_NODE": str(len(gpus)),
        "SLURM_JOB_GPUS": ",".join(map(str, gpus)),
        "SLURM_SUBMIT_DIR": job.spec.workdir,
        "SLURM_JOB_START_TIME": str(int(attempt.start_s)),
    }
    if job.spec.walltime_s is not None:
        variables["SLURM_JOB_END_TIME"] = str(int(attempt.start_s + job.spec.walltime_s))
    if job.restarts:
        variables["SLURM_RESTART_COUNT"] = str(job.restarts)
    return variables
