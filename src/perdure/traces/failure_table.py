"""Why jobs of Philly failed, how often they were tried, and how long they ran until then.

Source: M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019,
table 7. Run times to failure are minutes there; how a reason answers to a retry is our reading of it: of the 17,581
jobs in the table all but 1,024 ended without success (17.2 % of 96,260), so that few reasons can be such that heal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

_MINUTE_S = 60.0
_SHARE_OF_JOBS = 17_581 / 96_260  # jobs that the table counts, of those that the paper analyses
_LOST_S = 13.5e6 * _MINUTE_S
"""Run time to failure of all trials together. Not published; but with less the trials of some row would be too long for
its share, and with a quarter more those of another could not be long enough: no job of Philly ran for over 49 days."""


@dataclass(frozen=True, slots=True)
class FailureReason:
    """One row: `trials` failed attempts of `jobs` jobs, and the share that they have in the run time of all trials.

    `rtf_s` is the run time to failure at its quantiles 0.5, 0.9 and 0.95.
    """

    name: str
    trials: int
    jobs: int
    rtf_s: tuple[float, float, float]
    lost: float  # share in the run time to failure of all trials
    heals: bool  # whether a retry passes at last: faults of the site do, faults of the program do not


def _row(name: str, trials: int, jobs: int, *figures: float, heals: bool = False) -> FailureReason:
    median, p90, p95 = (minutes * _MINUTE_S for minutes in figures[:3])
    return FailureReason(name, trials, jobs, (median, p90, p95), figures[3] / 100, heals)


REASONS: Sequence[FailureReason] = (
    _row("cpu out of memory", 12076, 2803, 13.5, 17.7, 34.0, 6.62),
    _row("incorrect inputs", 9690, 4936, 1.9, 404.8, 2095.7, 30.43),
    _row("semantic error", 2943, 2049, 2.7, 376.0, 1436.9, 9.22),
    _row("core dump", 2912, 1784, 0.9, 72.8, 431.7, 3.35),
    _row("invalid memory access", 2602, 1235, 1.0, 403.5, 1357.4, 3.82),
    _row("model checkpoint error", 1995, 948, 181.7, 3728.9, 8196.0, 21.73),
    _row("cuda failure", 1484, 571, 1.3, 19.9, 82.2, 0.62, heals=True),
    _row("syntax error", 1132, 883, 0.6, 5.0, 12.0, 0.19),
    _row("traceback from crash", 777, 271, 1.0, 894.3, 1394.1, 2.34),
    _row("mpi error", 634, 166, 1.6, 3015.3, 5144.0, 3.70, heals=True),
    _row("gpu out of memory", 487, 261, 18.5, 353.6, 2740.3, 1.08),
    _row("mpi runtime failure", 478, 420, 1389.5, 13778.6, 18090.9, 14.63, heals=True),
    _row("permission error", 299, 151, 1.0, 8.2, 15.9, 0.07),
    _row("import error", 148, 148, 0.7, 4.6, 10.7, 0.06),
    _row("job preempted", 147, 95, 559.1, 2682.9, 5892.2, 1.66, heals=True),
    _row("cuda init failed", 141, 69, 1.1, 2.2, 4.6, 0.03, heals=True),
    _row("model diverged", 84, 30, 1.5, 44.4, 76.5, 0.01),
    _row("cuda version mismatch", 49, 49, 0.8, 1.7, 1.7, 0.00),
    _row("gpu ecc error", 10, 10, 26.8, 671.9, 2035.0, 0.05, heals=True),
    _row("output node error", 3, 3, 0.9, 1.0, 1.0, 0.00),
    _row("cannot load libraries", 1, 1, 0.1, 0.1, 0.1, 0.00),
    _row("no signature", 1684, 698, 1.9, 28.0, 95.2, 0.42),
)
SHARE_FAILING = _SHARE_OF_JOBS


def draw_reasons(count: int, rng: Generator) -> NDArray[np.intp]:
    """Reasons of this many failing jobs, as rows of `REASONS`."""
    jobs = np.array([reason.jobs for reason in REASONS], np.float64)
    return rng.choice(len(REASONS), count, p=jobs / jobs.sum())


def draw_trials(reasons: NDArray[np.intp], rng: Generator) -> NDArray[np.int64]:
    """How many attempts of each job fail: at least one, and as many in the mean as its reason's trials a job."""
    mean = np.array([reason.trials / reason.jobs for reason in REASONS])
    return rng.geometric(1 / mean[reasons])


def draw_rtf_s(reasons: NDArray[np.intp], rng: Generator) -> NDArray[np.float64]:
    """Seconds until an attempt fails, one for each reason given.

    Straight in the logarithm between the published quantiles; the fastest take a tenth of the median, and the slowest
    so long that all trials of the reason have their published share in the run time of all.
    """
    knots = _knots()
    at = rng.random(len(reasons))
    step = np.clip(np.searchsorted(_PLACES, at, "right") - 1, 0, len(_PLACES) - 2)
    share = (at - _PLACES[step]) / (_PLACES[step + 1] - _PLACES[step])
    low, high = knots[reasons, step], knots[reasons, step + 1]
    drawn: NDArray[np.float64] = np.exp(low + share * (high - low))
    return drawn


_PLACES = np.array([0.0, 0.5, 0.9, 0.95, 1.0])


@cache
def _knots() -> NDArray[np.float64]:
    """Logarithms of the seconds at `_PLACES`, shape (n_reasons, 5)."""
    knots: NDArray[np.float64] = np.log([_with_tail(reason) for reason in REASONS])
    return knots


def _with_tail(reason: FailureReason) -> tuple[float, ...]:
    """Seconds at `_PLACES`: the slowest trial takes what gives all trials their share, but no less than the others."""
    known = (reason.rtf_s[0] / 10, *reason.rtf_s)
    *widths, slowest = np.diff(_PLACES)
    before = sum(width * _mean(low, high) for width, (low, high) in zip(widths, pairwise(known), strict=True))
    wanted = (reason.lost * _LOST_S / reason.trials - before) / slowest
    low, high = known[-1], known[-1] + 1000 * max(wanted, 1.0)
    while high - low > 1.0:
        middle = (low + high) / 2
        low, high = (middle, high) if _mean(known[-1], middle) < wanted else (low, middle)
    return (*known, low)


def _mean(low: float, high: float) -> float:
    """The mean of numbers spread evenly in the logarithm."""
    return float((high - low) / np.log(high / low)) if high > low else low
