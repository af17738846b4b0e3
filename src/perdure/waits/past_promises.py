"""What would have been said of jobs of the past when they came, next to what came.

A site's first chain has no forecasts of its own to learn from; others' jobs of its kind have waited in the same line.
Each is asked about as if it were submitted at the instant at which it came, with what accounting knew by then.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from msgspec import structs
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.waits.calibration import Promise
from perdure.waits.forecast import of_samples
from perdure.waits.hindcast import FIT_DAYS, before, job_at, queue_at, with_share
from perdure.waits.own_errors import kind_of
from perdure.waits.past import DAY_S, Past
from perdure.waits.queue import Queue, QueuedJob
from perdure.waits.rollout import HORIZON_S, counted_by, scene_of

SAMPLES = 16  # futures in which one is asked about
EACH_S = 3600.0  # of one that came so soon before another the wait is about the same: it tells little more
PARTS = 200  # of a short past: jobs that came a part of it apart count

Floats = NDArray[np.float64]


def rows_alike(past: Past, job: QueuedJob, but: Collection[str], most: int) -> list[int]:
    """Rows of jobs of one kind with `job`, the newest first, that came apart from each other; none of the jobs `but`.

    Of the later half of the past alone, so that each has a past of its own.
    """
    came, kind = _came_s(past), kind_of(job.partitions, job.gpus)
    begin_s = past.until_s - min(past.span_s / 2, FIT_DAYS * DAY_S)
    there = np.isin(past.jobs.partition, job.partitions) & (came >= begin_s) & (came <= past.until_s)
    there &= ~np.isin(past.jobs.job_id, np.array(sorted(but), np.str_))
    there &= np.isfinite(past.jobs.start_s) | ~np.isfinite(past.jobs.end_s)  # not cancelled while it waited
    apart_s, found, last_s = min(EACH_S, past.span_s / PARTS), list[int](), np.inf
    for row in (rows := np.flatnonzero(there))[np.argsort(-came[rows], kind="stable")].tolist():
        if len(found) == most:
            break
        is_alike = kind_of(job.partitions, int(past.jobs.gpus[row])) == kind
        if is_alike and last_s - came[row] >= apart_s:
            found.append(row)
            last_s = came[row]
    return found


def promise_then(
    row: int, past: Past, queue: Queue, settings: SchedulerSettings, share: float, rng: Generator
) -> Promise:
    """What would have been said of one job when it came, on the nodes of today, and its start.

    `share` of the GPUs is counted (`hindcast.Fit.gpus_share`). Where no future starts the job nothing would have been
    said: the promise is of no kind then.
    """
    now_s = float(_came_s(past)[row])
    job = structs.replace(job_at(past, row, now_s), state=JobState.PENDING, start_s=None)
    then = queue_at(past, now_s, queue)
    others = structs.replace(then, jobs=tuple(each for each in then.jobs if each.job_id != job.job_id))
    scene = with_share(scene_of(job, others, settings, before(past, now_s), rng, SAMPLES), share)
    (starts,) = scene.starts([counted_by(job, gpus=job.gpus > 0)])
    kind = "" if np.isinf(starts).all() else kind_of(job.partitions, job.gpus)
    said_s = of_samples(now_s, np.minimum(starts - now_s, HORIZON_S)).wait_s
    start_s = float(past.jobs.start_s[row])
    came = start_s if np.isfinite(start_s) else None
    return Promise(job.job_id, now_s, said_s, came, raw_s=said_s, kind=kind)


def _came_s(past: Past) -> Floats:
    """Since when each job could have started."""
    return np.asarray(np.fmax(past.jobs.eligible_s, past.jobs.submit_s), np.float64)
