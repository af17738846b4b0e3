"""By how much the jobs fare better or worse under one schedule than under another, and how sure that is.

The jobs are the same, so each is compared with itself. Jobs that come together wait for each other, for days where the
cluster is full: so days are resampled, a tenth of them in a row at a time (the circular block bootstrap of D. Politis
and J. Romano, 1992), and where there are several seeds, these too. The interval is widened as Student's t is wider than
the normal distribution where values are as few as the blocks. All schedules see the same draws.

Of many groups some differ by chance alone. So each difference has a p-value too, read from the same interval: by
Student's t, of which the interval's half on the side of 0 is one critical value, so that a heavy tail on the other side
does not count. Thus p is below 5% where the interval leaves out 0; `discovered` says which of many are to be believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import atan, cos, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from perdure.simulation.by_day import MEASURES, DayTotals, Group

DRAWS = 1000
LEVEL = 0.95
LEAST_DAYS = 7  # with jobs; of fewer no interval is given
_BLOCKS = 10  # that the days are parted into, or as many as there are days
_STUDENT = 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145  # for 5 to 14 degrees of freedom
_NORMAL = 1.960

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A mean over some jobs under one schedule against that under another; a change below 0 is better."""

    jobs: int
    mean: float  # under the one
    other: float  # under the other
    low: float | None = None  # of `share`, at 95 %; None where too few days have such jobs
    high: float | None = None
    p: float | None = None  # of a change as large as this by chance, either way; None where no interval is told

    @property
    def change(self) -> float:
        return self.mean - self.other

    @property
    def share(self) -> float:
        """The change as a share of the other's mean; 0 where that is 0."""
        return self.change / self.other if self.other else 0.0

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high

    def to_json(self) -> dict[str, Any]:
        names = "jobs", "mean", "other", "change", "share", "low", "high", "p", "is_sure"
        return {name: getattr(self, name) for name in names}


Differences = dict[Group, dict[str, PairedDifference]]
"""By group of jobs, then by measure."""


def differences(one: Sequence[DayTotals], other: Sequence[DayTotals], seed: int = 0) -> Differences:
    """Compare two schedules of the same jobs, each given by one value a seed.

    `seed` is that of the draws. Of a group whose jobs came on fewer than `LEAST_DAYS` days no interval is given.
    """
    jobs = one[0].jobs
    days, seeds = _draws(jobs.shape[1], len(one), seed)
    mine, theirs = (np.array([each.totals for each in some]) for some in (one, other))  # seed, measure, group, day
    many = jobs @ days.T  # group, draw
    told = (jobs > 0).sum(axis=1) >= LEAST_DAYS
    found: Differences = {}
    for place, group in enumerate(one[0].groups):
        drawn = many[place] > 0
        draws = (days[drawn], seeds[drawn], many[place][drawn] * len(one)) if told[place] else None
        runs = max(1, int(jobs[place].sum()) * len(one))
        found[group] = {
            name: _difference(name, mine[:, n, place], theirs[:, n, place], runs, draws)
            for n, name in enumerate(MEASURES)
        }
    return found


_DrawsOf = tuple[Floats, Floats, Floats]  # how often each day and each seed is drawn, and how many jobs that makes


def _difference(name: str, mine: Floats, theirs: Floats, runs: int, draws: _DrawsOf | None) -> PairedDifference:
    """Of totals by seed and day. Shares are resampled by their logarithms, so that none is below -100 %."""
    mean, other = float(mine.sum()) / runs, float(theirs.sum()) / runs
    jobs, blocks = runs // len(mine), mine.shape[1] / _block_days(mine.shape[1])
    if name.startswith("log"):  # geometric means
        typical = PairedDifference(jobs, float(np.exp(mean)), float(np.exp(other)))
        return typical if draws is None else _with_interval(typical, _drawn(mine - theirs, draws), blocks)
    found = PairedDifference(jobs, mean, other)
    if draws is None or not mean or not other:
        return found
    one, against = _drawn(mine, draws), _drawn(theirs, draws)
    some = (one > 0) & (against > 0)
    return _with_interval(found, np.log(one[some] / against[some]), blocks)


def _drawn(totals: Floats, draws: _DrawsOf) -> Floats:
    """The mean in each draw."""
    days, seeds, many = draws
    means: Floats = ((seeds @ totals) * days).sum(axis=1) / many
    return means


def _with_interval(found: PairedDifference, drawn: Floats, blocks: float) -> PairedDifference:
    """`drawn`: the logarithm of the ratio of the means in each draw."""
    few = max(5, min(round(blocks) - 1, 14))
    of_blocks = sqrt(blocks / (blocks - 1))
    wider = _STUDENT[few - 5] / _NORMAL * of_blocks
    middle = float(np.log(found.mean / found.other))
    ends = middle + (np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - middle) * wider
    low, high = np.expm1(ends).tolist()
    to_zero = float(middle - ends[0] if middle > 0 else ends[1] - middle)
    t = _STUDENT[few - 5] * middle
    p = student_p(t / to_zero, few) if to_zero > abs(t) * 1e-9 else float(middle == 0)
    return replace(found, low=low, high=high, p=p)


def student_p(t: float, freedom: int) -> float:
    """The chance of a value at least as far from 0 as `t` under Student's distribution, of at least 2 degrees.

    Source: M. Abramowitz and I. Stegun, Handbook of mathematical functions, 1964, 26.7.3 and 26.7.4.

    >>> round(student_p(2.262, 9), 3), round(student_p(-2.179, 12), 3)
    (0.05, 0.05)
    """
    angle = atan(abs(t) / sqrt(freedom))
    odd = freedom % 2
    term = total = cos(angle) if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cos(angle) ** 2 * (k - 1) / k
        total += term
    within = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max(0.0, 1.0 - within)


def discovered(found: Sequence[PairedDifference], level: float = 1 - LEVEL) -> list[bool]:
    """Which of many differences are to be believed: of those, the share `level` is no difference in the long run.

    One without an interval is never believed, and does not count among the many. Source: Y. Benjamini and Y. Hochberg,
    "Controlling the false discovery rate", JRSS-B 57, 1995.

    >>> alike = [PairedDifference(9, 2, 1, 0.5, 2, p) for p in (0.9, 0.013, 0.001, 0.04)]
    >>> discovered(alike)
    [False, True, True, False]
    """
    ranked = sorted(each.p for each in found if each.p is not None)
    least = max((p for n, p in enumerate(ranked, 1) if p <= n / len(ranked) * level), default=-1.0)
    return [each.p is not None and each.p <= least for each in found]


def _block_days(days: int) -> int:
    return max(1, round(days / _BLOCKS))


def _draws(days: int, seeds: int, seed: int) -> tuple[Floats, Floats]:
    """How often each day and each seed is in each draw; shapes (`DRAWS`, `days`) and (`DRAWS`, `seeds`)."""
    rng = Generator(Philox(key=seed))
    length = _block_days(days)
    begins = rng.integers(days, size=(DRAWS, -(-days // length), 1))
    drawn = ((begins + np.arange(length)) % days).reshape(DRAWS, -1)[:, :days]
    return _counts(drawn, days), _counts(rng.integers(seeds, size=(DRAWS, seeds)), seeds)


def _counts(drawn: NDArray[np.int64], among: int) -> Floats:
    cells = np.arange(len(drawn))[:, None] * among + drawn
    return np.bincount(cells.ravel(), minlength=len(drawn) * among).reshape(-1, among).astype(np.float64)
