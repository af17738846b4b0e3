"""Fairness: how each job fared against its share of the cluster, and against what the others had.

Finish-time fairness is how much later a job ends than it would alone on its share. Source: K. Mahajan et al., "Themis:
fair and efficient GPU cluster scheduling", NSDI 2020. There an app can use the whole cluster; here a job has a gang of
one size, which a share that is wide enough serves no faster.

Envy is how much faster a job would have been with what another had that was there at the same time. Without prices, an
allocation that leaves none is fair: nobody would rather have another's share. Source: H. Varian, "Equity, envy, and
efficiency", Journal of Economic Theory 9, 1974.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.result import Result

if TYPE_CHECKING:
    from perdure.simulation.elastic import ElasticResult

Floats = NDArray[np.float64]
_ROWS = 1024  # of jobs that are compared with all at once


def rho(table: JobTable, result: Result) -> Floats:
    """Finish-time fairness of each job, shape (n_jobs,); above 1 is worse than its share. NaN for one that never ran.

    Its JCT, over the time that its attempts ran, stretched by ``gpus * N / total`` where that is above 1: N is the mean
    number of jobs that were there, waiting or running, from its submit to its end.
    """
    ran_s = np.bincount(result.attempts.job, result.attempts.ran_s - result.attempts.lost_s, len(table))
    jct_s = result.end_s - table.submit_s
    there = mean_present(table.submit_s, result.end_s)
    alone_s = ran_s * np.maximum(1.0, table.gpus * there / result.total_gpus)
    fairness: Floats = np.divide(jct_s, alone_s, out=np.full(len(table), np.nan), where=alone_s > 0)
    return fairness


def jain(got: Floats) -> float:
    """Jain's index: 1 where all got alike, 1 / n where one of n got everything; 1 of nobody.

    Source: R. Jain, D.-M. Chiu, W. Hawe, "A quantitative measure of fairness", DEC-TR-301, 1984.

    >>> jain(np.array([1.0, 1.0])), jain(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    return float(got.sum() ** 2 / (len(got) * (got**2).sum())) if got.any() else 1.0


def mean_present(since_s: Floats, until_s: Floats) -> Floats:
    """For each stretch of time, how many of all stretches cover an instant of it in the mean, itself included."""
    edges = np.concatenate([since_s, until_s])
    order = np.argsort(edges, kind="stable")
    steps = np.repeat([1, -1], len(since_s))[order]
    at = edges[order]
    covered = np.concatenate([[0.0], np.cumsum(np.cumsum(steps)[:-1] * np.diff(at))]) if len(at) else at
    length = until_s - since_s
    whole = np.interp(until_s, at, covered) - np.interp(since_s, at, covered) if len(at) else at
    present: Floats = np.divide(whole, length, out=np.ones(len(length)), where=length > 0)
    return present


def envy(result: ElasticResult) -> Floats:
    """The part of its speed that each job misses against the best share of another (n_jobs,); 0: none is better.

    A share is the GPU time of each type that a job held for each second from its submit to its end. It is worth to
    another job what that would do with it: as much as it holds of the GPUs asked for, up to all of them, at the speed
    that was profiled on each type. Only jobs that were there at the same time are compared. NaN for a job that runs
    nowhere, or was there for no time.
    """
    present_s = result.end_s - result.submit_s
    was_there = present_s > 0  # else its app had no need of it any more when it came
    share = np.divide(
        result.held_gpu_s, present_s[:, None], out=np.zeros(result.held_gpu_s.shape), where=was_there[:, None]
    )
    asked = result.asked_gpus.astype(float)
    speed = np.where(np.isfinite(result.alone_on_s), 1.0 / result.alone_on_s, 0.0)
    own = _worth(share.sum(axis=1), (share * speed).sum(axis=1), asked)
    best = np.zeros(len(own))
    for first in range(0, len(own), _ROWS):
        rows = slice(first, first + _ROWS)
        worth = _worth(share.sum(axis=1)[None, :], speed[rows] @ share.T, asked[rows, None])
        together = (result.submit_s[rows, None] < result.end_s) & (result.submit_s < result.end_s[rows, None])
        best[rows] = np.where(together, worth, 0.0).max(axis=1)
    missed: Floats = np.divide(best - own, best, out=np.full(len(own), np.nan), where=was_there & (best > 0))
    return np.maximum(missed, 0.0)


def _worth(gpus: Floats, work: Floats, asked: Floats) -> Floats:
    """Work a second of a share of so many GPUs in the mean; a job uses at most those that it asks for."""
    return np.asarray(work / np.maximum(gpus, asked), float)
