"""What came of a policy in force: waits and completion times of the jobs that took part, beside what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.random import Generator
from numpy.typing import NDArray

LEAST_JOBS = 30  # that are over; of fewer no interval is told
BLOCKS = 10  # jobs that come together wait for each other: so many runs of them are drawn
DRAWS = 1000
Floats = NDArray[np.float64]


class PolicyPromise(Struct, frozen=True):
    """What a what-if of this site's history said of a policy and of the resource manager's own way. Means, seconds."""

    comparison: str  # its id
    asked_s: float
    jobs: int
    wait_s: float
    jct_s: float
    own_wait_s: float
    own_jct_s: float


class PolicyTerm(Struct, frozen=True):
    """Since when a policy is in force, until when, and what was promised then; None where nothing was replayed."""

    policy: str
    since_s: float
    until_s: float | None = None
    promise: PolicyPromise | None = None


class JobLife(NamedTuple):
    """When a job that took part came, first started, and ended; None where it did not yet. Seconds since the epoch."""

    came_s: float
    started_s: float | None
    ended_s: float | None


class MeanInterval(Struct, frozen=True):
    """A mean, and the ends of its interval at 95 %; None where the jobs are too few."""

    mean: float
    low: float | None = None
    high: float | None = None


class PolicyOutcome(Struct, frozen=True):
    """What came since: `over` of `came` jobs have ended, and the means are theirs; None without any."""

    came: int
    over: int
    wait_s: MeanInterval | None = None
    jct_s: MeanInterval | None = None

    @property
    def is_enough(self) -> bool:
        return self.over >= LEAST_JOBS


def outcome_of(lives: Sequence[JobLife], rng: Generator) -> PolicyOutcome:
    """What came of jobs, in the order in which they came.

    Long jobs are over last: while many are not, the means are those of the short ones.
    """
    over = [
        (started_s - came_s, ended_s - came_s)
        for came_s, started_s, ended_s in sorted(lives, key=lambda job: job.came_s)
        if started_s is not None and ended_s is not None
    ]
    if not over:
        return PolicyOutcome(len(lives), 0)
    wait_s, jct_s = np.array(over, float).T
    return PolicyOutcome(len(lives), len(over), _mean(wait_s, rng), _mean(jct_s, rng))


def _mean(values: Floats, rng: Generator) -> MeanInterval:
    """By the circular block bootstrap (D. Politis and J. Romano, 1992)."""
    n, mean = len(values), float(values.mean())
    if n < LEAST_JOBS:
        return MeanInterval(mean)
    length = -(-n // BLOCKS)
    begins = rng.integers(0, n, (DRAWS, BLOCKS))
    drawn = ((begins[:, :, None] + np.arange(length)) % n).reshape(DRAWS, -1)[:, :n]
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
    return MeanInterval(mean, float(low), float(high))
