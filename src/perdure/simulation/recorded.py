"""The schedule that a trace recorded, in the form of a simulation's result: what others are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.result import AttemptLog, Result
from perdure.simulation.workload import attempts_of

AS_IT_WAS = "as it was"


def as_recorded(table: JobTable, total_gpus: int) -> tuple[JobTable, Result] | None:
    """The jobs whose start is recorded, and when they ran; None where no start is.

    Where an end is not known, a job ran without a break. Of several attempts only the first start and the last end are
    told: what lies between is shared out by how long each ran.

    >>> starts = np.array([2, np.nan])
    >>> table = JobTable(np.array(["a", "b"]), np.zeros(2), np.ones(2, int), np.full(2, 5.0), start_s=starts)
    >>> jobs, result = as_recorded(table, total_gpus=1)
    >>> jobs.job_id.tolist(), result.end_s.tolist(), result.busy_gpu_s
    (['a'], [7.0], 5.0)
    """
    known = np.flatnonzero(np.isfinite(table.start_s))
    if not len(known):
        return None
    if len(known) < len(table):
        table = table.take(known)
    end_s = np.maximum(np.where(np.isfinite(table.end_s), table.end_s, table.start_s + table.duration_s), table.start_s)
    log = _log(table, end_s)
    passed = np.zeros(len(table), np.bool_)
    passed[log.job] = log.passed  # a job's last attempt comes last
    busy = float(log.ran_s @ table.gpus[log.job])
    preempted, promoted = table.preempted.astype(np.int64), np.zeros(len(table), np.int64)
    return table, Result(
        AS_IT_WAS, "recorded", 0, table.start_s, end_s, preempted, promoted, passed, log, 0, busy, total_gpus
    )  # fmt: skip


def _log(table: JobTable, end_s: NDArray[np.float64]) -> AttemptLog:
    """The attempts of each job, one after another from its start to its end."""
    first, ran_s, passed = attempts_of(table)
    counts = np.diff(first)
    job = np.repeat(np.arange(len(table)), counts)
    until = np.cumsum(ran_s)
    before = np.concatenate([[0.0], until])[first[:-1]]  # what earlier jobs ran
    whole = np.concatenate([[0.0], until])[first[1:]] - before
    stretched = np.divide(end_s - table.start_s, whole, out=np.zeros(len(table)), where=whole > 0)[job]
    began_s = table.start_s[job] + (until - ran_s - before[job]) * stretched
    ended_s = table.start_s[job] + (until - before[job]) * stretched
    number = np.arange(len(job)) - first[:-1][job] + 1
    nowhere, none = np.full(len(job), -1), np.zeros(len(job))
    return AttemptLog(
        job, number, table.submit_s[job], began_s, ended_s, ran_s, passed, nowhere, np.arange(len(job)), none
    )
