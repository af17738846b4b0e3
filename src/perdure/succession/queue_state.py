"""A look at a queue as numbers: how much waits, how much runs, how large, how old and how long.

The variables are those of Mirage (Ding et al., SC'23), as far as its abstract and talks show: counts, and five-number
summaries of sizes, ages and limits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable

Floats = NDArray[np.float64]
FIVE = (0.0, 0.25, 0.5, 0.75, 1.0)
_FIVE_NAMES = ("min", "p25", "p50", "p75", "max")
NAMES = (
    "waiting", "waiting_gpus", "waiting_gpu_h", "running", "running_gpus", "running_gpu_h_left", "free_gpus",
    *(f"waiting_{what}_{each}" for what in ("gpus", "age_h", "limit_h") for each in _FIVE_NAMES),
    *(f"running_{what}_{each}" for what in ("gpus", "elapsed_h", "limit_h") for each in _FIVE_NAMES),
)  # fmt: skip


def queue_state(jobs: JobTable, now: float, total_gpus: int) -> Floats:
    """(len(NAMES),) shares of the cluster, hours and logarithms of counts; jobs that run have a `start_s`."""
    runs = np.isfinite(jobs.start_s)
    limit_h, gpus = jobs.walltime_s / 3600, jobs.gpus / total_gpus
    age_h = (now - np.where(runs, jobs.start_s, jobs.submit_s)) / 3600
    left_h = np.maximum(limit_h - age_h, 0.0)
    counts = [
        np.log1p((~runs).sum()), gpus[~runs].sum(), (gpus * limit_h)[~runs].sum(), np.log1p(runs.sum()),
        gpus[runs].sum(), (gpus * left_h)[runs].sum(), 1 - gpus[runs].sum(),
    ]  # fmt: skip
    summaries = [_five(column[which]) for which in (~runs, runs) for column in (gpus, age_h, limit_h)]
    return np.concatenate([np.array(counts, np.float64), *summaries])


def _five(values: Floats) -> Floats:
    return np.quantile(values, FIVE) if len(values) else np.zeros(len(FIVE))
