"""Apps that search hyper-parameters, drawn as Themis' paper describes its trace: many jobs an app, mostly of four GPUs.

Source: K. Mahajan et al., "Themis: fair and efficient GPU cluster scheduling", NSDI 2020, section 8.1, as far as it is
described in words: 1 to 98 jobs an app, 23 in the median; jobs that take 59 minutes in the median, or where an app is
long 123; few jobs on 2 GPUs and most on 4; one app in 20 minutes. Which applications these are, and scores, are ours.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from perdure.errors import InputError
from perdure.model.profiles import AdaptiveJobs, AppJobs

_MEDIAN_JOBS, _SPREAD_JOBS, _MOST_JOBS = 23, 0.9, 98
_SPREAD_TIME = 0.3  # of the logarithm, between apps; where the first job that is done decides, within them too
_SHARE_LONG, _SHARE_NARROW = 0.4, 0.1


class _Kind(NamedTuple):
    """An application of the profiles of Pollux and Sia; `whole_min` is all of its work on 4 T4s with this batch."""

    application: str
    batch: int
    whole_min: float


_SHORT = (_Kind("cifar10", 512, 19.5), _Kind("bert", 48, 59.8))
_LONG = (_Kind("deepspeech2", 80, 106.3),)
_SHORT_MIN, _LONG_MIN = 59.0, 123.0


def draw_apps(count: int, every_s: float, search: str, rng: Generator) -> AdaptiveJobs:
    """So many apps, one in `every_s` seconds in the mean; all of them search in the same way."""
    rows = list[tuple[str, float, _Kind, int, float]]()
    at_s = 0.0
    for number in range(count):
        jobs = int(np.clip(round(_MEDIAN_JOBS * np.exp(rng.normal(0.0, _SPREAD_JOBS))), 1, _MOST_JOBS))
        long = rng.random() < _SHARE_LONG
        kinds = _LONG if long else _SHORT
        kind, gpus = kinds[int(rng.integers(len(kinds)))], 2 if rng.random() < _SHARE_NARROW else 4
        minutes = (_LONG_MIN if long else _SHORT_MIN) * np.exp(rng.normal(0.0, _SPREAD_TIME))
        each = np.exp(rng.normal(0.0, _SPREAD_TIME, jobs)) if search == "first" else np.ones(jobs)
        rows += [(f"app-{number}", at_s, kind, gpus, part * minutes / kind.whole_min) for part in each.tolist()]
        at_s += rng.exponential(every_s)
    names, submit_s, of, gpus_of, work = zip(*rows, strict=True)
    n = len(rows)
    return AdaptiveJobs(
        np.array([f"job-{row}" for row in range(n)]),
        np.array(submit_s, float).round(),
        np.array([kind.application for kind in of]),
        np.array(gpus_of, np.int64),
        np.array([kind.batch for kind in of], np.int64),
        work=np.array(work, float).round(6),
        apps=AppJobs(np.array(names), rng.random(n).round(6), np.full(n, search)),
    )


def write_apps(jobs: AdaptiveJobs, path: Path) -> None:
    """Write such jobs as CSV, as `profiles.read_adaptive` reads them. Raises `InputError` where that fails."""
    assert jobs.work is not None
    assert jobs.apps is not None
    columns = {
        "name": jobs.job_id, "time": jobs.submit_s, "application": jobs.application, "num_replicas": jobs.gpus,
        "batch_size": jobs.batch, "work": jobs.work, "app": jobs.apps.app, "score": jobs.apps.score,
        "search": jobs.apps.search,
    }  # fmt: skip
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    except OSError as err:
        raise InputError(str(path), f"cannot be written ({err.strerror})", "Name a file that you may write") from err
