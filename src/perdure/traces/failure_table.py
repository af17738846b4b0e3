"""Why jobs of Philly failed, how often they were tried, and how long they ran until then.

Source: M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019,
table 7. Run times to failure are minutes there; how a reason answers to a retry is our reading of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

_MINUTE_S = 60.0
_SHARE_OF_JOBS = 17_581 / 96_260  # jobs that the table counts, of those that the paper analyses


@dataclass(frozen=True, slots=True)
class Reason:
    """One row: `trials` failed attempts of `jobs` jobs; run time to failure at its quantiles 0.5, 0.9 and 0.95."""

    name: str
    trials: int
    jobs: int
    rtf_s: tuple[float, float, float]
    heals: bool  # whether a retry passes at last: faults of the site do, faults of the program do not


def _row(name: str, trials: int, jobs: int, *minutes: float, heals: bool = False) -> Reason:
    median, p90, p95 = (minute * _MINUTE_S for minute in minutes)
    return Reason(name, trials, jobs, (median, p90, p95), heals)


REASONS: Sequence[Reason] = (
    _row("cpu out of memory", 12076, 2803, 13.5, 17.7, 34.0),
    _row("incorrect inputs", 9690, 4936, 1.9, 404.8, 2095.7),
    _row("semantic error", 2943, 2049, 2.7, 376.0, 1436.9),
    _row("core dump", 2912, 1784, 0.9, 72.8, 431.7),
    _row("invalid memory access", 2602, 1235, 1.0, 403.5, 1357.4),
    _row("model checkpoint error", 1995, 948, 181.7, 3728.9, 8196.0),
    _row("cuda failure", 1484, 571, 1.3, 19.9, 82.2, heals=True),
    _row("syntax error", 1132, 883, 0.6, 5.0, 12.0),
    _row("traceback from crash", 777, 271, 1.0, 894.3, 1394.1),
    _row("mpi error", 634, 166, 1.6, 3015.3, 5144.0, heals=True),
    _row("gpu out of memory", 487, 261, 18.5, 353.6, 2740.3),
    _row("mpi runtime failure", 478, 420, 1389.5, 13778.6, 18090.9, heals=True),
    _row("permission error", 299, 151, 1.0, 8.2, 15.9),
    _row("import error", 148, 148, 0.7, 4.6, 10.7),
    _row("job preempted", 147, 95, 559.1, 2682.9, 5892.2, heals=True),
    _row("cuda init failed", 141, 69, 1.1, 2.2, 4.6, heals=True),
    _row("model diverged", 84, 30, 1.5, 44.4, 76.5),
    _row("cuda version mismatch", 49, 49, 0.8, 1.7, 1.7),
    _row("gpu ecc error", 10, 10, 26.8, 671.9, 2035.0, heals=True),
    _row("output node error", 3, 3, 0.9, 1.0, 1.0),
    _row("cannot load libraries", 1, 1, 0.1, 0.1, 0.1),
    _row("no signature", 1684, 698, 1.9, 28.0, 95.2),
)
SHARE_FAILING = _SHARE_OF_JOBS


def draw_reasons(count: int, rng: Generator) -> NDArray[np.intp]:
    """Reasons of so many failing jobs, as rows of `REASONS`."""
    jobs = np.array([reason.jobs for reason in REASONS], np.float64)
    return rng.choice(len(REASONS), count, p=jobs / jobs.sum())


def draw_trials(reasons: NDArray[np.intp], rng: Generator) -> NDArray[np.int64]:
    """How many attempts of each job fail: at least one, and as many in the mean as its reason's trials a job."""
    mean = np.array([reason.trials / reason.jobs for reason in REASONS])
    return rng.geometric(1 / mean[reasons])


def draw_rtf_s(reasons: NDArray[np.intp], rng: Generator) -> NDArray[np.float64]:
    """Seconds until an attempt fails, one for each reason given.

    Straight in the logarithm between the published quantiles; the fastest take a tenth of the median, and the slowest
    as much longer than the quantile 0.95 as that is longer than the median, but at most twice as long.
    """
    knots = np.array([_knots(reason) for reason in REASONS])
    at = rng.random(len(reasons))
    step = np.clip(np.searchsorted(_PLACES, at, "right") - 1, 0, len(_PLACES) - 2)
    share = (at - _PLACES[step]) / (_PLACES[step + 1] - _PLACES[step])
    low, high = knots[reasons, step], knots[reasons, step + 1]
    drawn: NDArray[np.float64] = np.exp(low + share * (high - low))
    return drawn


_PLACES = np.array([0.0, 0.5, 0.9, 0.95, 1.0])


def _knots(reason: Reason) -> NDArray[np.float64]:
    median, p90, p95 = reason.rtf_s
    knots: NDArray[np.float64] = np.log([median / 10, median, p90, p95, p95 * min(2.0, p95 / median)])
    return knots
