"""Envy: how much faster a job would have been with what another had that was there at the same time.

Without prices, an allocation that leaves none is fair: nobody would rather have another's share.

Source: H. Varian, "Equity, envy, and efficiency", Journal of Economic Theory 9, 1974.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.elastic import ElasticResult
from perdure.throughput.speed import Floats

_ROWS = 1024  # of jobs that are compared with all at once


def envy(result: ElasticResult) -> Floats:
    """The part of its speed that each job misses against the best share of another (n_jobs,); 0: none is better.

    A share is the GPU time of each type that a job held for each second from its submit to its end. It is worth to
    another job what that would do with it: as much as it holds of the GPUs asked for, up to all of them, at the speed
    that was profiled on each type. Only jobs that were there at the same time are compared. NaN for a job that runs
    nowhere.
    """
    present_s = result.end_s - result.submit_s
    share, asked = result.held_gpu_s / present_s[:, None], result.asked_gpus.astype(float)
    speed = np.where(np.isfinite(result.alone_on_s), 1.0 / result.alone_on_s, 0.0)
    own = _worth(share.sum(axis=1), (share * speed).sum(axis=1), asked)
    best = np.zeros(len(own))
    for first in range(0, len(own), _ROWS):
        rows = slice(first, first + _ROWS)
        worth = _worth(share.sum(axis=1)[None, :], speed[rows] @ share.T, asked[rows, None])
        together = (result.submit_s[rows, None] < result.end_s) & (result.submit_s < result.end_s[rows, None])
        best[rows] = np.where(together, worth, 0.0).max(axis=1)
    missed: Floats = np.divide(best - own, best, out=np.full(len(own), np.nan), where=best > 0)
    return np.maximum(missed, 0.0)


def _worth(gpus: Floats, work: Floats, asked: Floats) -> Floats:
    """Work a second of a share of so many GPUs in the mean; a job uses at most those that it asks for."""
    return np.asarray(work / np.maximum(gpus, asked), float)
