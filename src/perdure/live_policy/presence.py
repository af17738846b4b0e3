"""How many jobs were there on average since each one came."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean_present(since_s: Sequence[float], now_s: float, lives: Sequence[tuple[float, float]]) -> Floats:
    """The mean number of jobs that were there from each instant in `since_s` until now, shape (n,).

    `lives`: when each job came and went, of those that have gone; those of `since_s` themselves are there until now.

    >>> mean_present([0.0, 5.0], 10.0, [(-5.0, 5.0)]).tolist()
    [2.0, 2.0]
    """
    since = np.array(since_s, float)
    came = np.sort(np.concatenate([since, [come for come, _ in lives]]))
    gone = np.sort(np.array([end for _, end in lives], float))

    def job_seconds(at: Floats) -> Floats:
        return _passed(came, at) - _passed(gone, at)

    span = now_s - since
    total = job_seconds(np.full(len(since), now_s)) - job_seconds(since)
    return np.where(span > 0, total / np.where(span > 0, span, 1.0), float(len(since)))


def _passed(instants: Floats, at: Floats) -> Floats:
    """For each of `at` the seconds that have passed since all instants before it, added up."""
    before = np.searchsorted(instants, at)
    added = np.concatenate([[0.0], np.cumsum(instants)])
    return np.asarray(before * at - added[before], float)
