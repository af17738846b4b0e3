"""Finish-time fairness: how much later a job ends than it would alone on its share of the cluster.

Source: K. Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", NSDI 2020. There an app can use the
whole cluster; here a job has a gang of one size, which a share that is wide enough serves no faster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.result import Result


def rho(table: JobTable, result: Result) -> NDArray[np.float64]:
    """Finish-time fairness of each job, shape (n_jobs,); above 1 is worse than its share. NaN for one that never ran.

    Its JCT, over the time that its attempts ran, stretched by ``gpus * N / total`` where that is above 1: N is the mean
    number of jobs that were there, waiting or running, from its submit to its end.
    """
    ran_s = np.bincount(result.attempts.job, result.attempts.ran_s - result.attempts.lost_s, len(table))
    jct_s = result.end_s - table.submit_s
    there = mean_present(table.submit_s, result.end_s)
    alone_s = ran_s * np.maximum(1.0, table.gpus * there / result.total_gpus)
    fairness: NDArray[np.float64] = np.divide(jct_s, alone_s, out=np.full(len(table), np.nan), where=alone_s > 0)
    return fairness


def jain(got: NDArray[np.float64]) -> float:
    """Jain's index: 1 where all got alike, 1 / n where one of n got everything; 1 of nobody.

    Source: R. Jain, D.-M. Chiu, W. Hawe, "A quantitative measure of fairness", DEC-TR-301, 1984.

    >>> jain(np.array([1.0, 1.0])), jain(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    return float(got.sum() ** 2 / (len(got) * (got**2).sum())) if got.any() else 1.0


def mean_present(since_s: NDArray[np.float64], until_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each stretch of time, how many of all stretches cover an instant of it in the mean, itself included."""
    edges = np.concatenate([since_s, until_s])
    order = np.argsort(edges, kind="stable")
    steps = np.repeat([1, -1], len(since_s))[order]
    at = edges[order]
    covered = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(at))]) if len(at) else at
    length = until_s - since_s
    whole = np.interp(until_s, at, covered) - np.interp(since_s, at, covered) if len(at) else at
    present: NDArray[np.float64] = np.divide(whole, length, out=np.ones(len(length)), where=length > 0)
    return present
