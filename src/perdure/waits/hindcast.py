"""Answers about the past, held against what came: how far this site's what-if runs are off, and the correction for it.

At instants of the last weeks the queue is put together again from accounting, asked about with what was known then,
and the answers are compared with the starts that followed. The correction is conformal, level by level: a quantile is
moved by what it would have had to be moved by then to hold as often as it promises.

Source: Y. Romano, E. Patterson and E. Candès, "Conformalized quantile regression", NeurIPS 2019, eq. 8, for each level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from msgspec import Struct
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.waits.forecast import LEVELS, WaitForecast, of_quantiles, of_samples
from perdure.waits.past import DAY_S, Past
from perdure.waits.queue import Queue, QueuedJob
from perdure.waits.rollout import HORIZON_S, Scene, scene_of
from perdure.waits.run_times import RunTimes

FLOOR_S = 60.0  # errors of shorter waits are the scheduler's cycles, not ours
ENOUGH = 30  # answers that a correction can be read from
WIDEST = 1.5  # decades by which a quantile is moved at most
SHARES = (1.0, 0.95, 0.9, 0.8)  # of the GPUs that jobs may really use, of which the likeliest is chosen
FIT_DAYS = 14  # what was learnt longer ago is forgotten
MOST_JOBS = 8  # asked about at one instant

Floats = NDArray[np.float64]


class Fit(Struct, frozen=True):
    """What was learnt from answers about the past."""

    made_s: float
    answers: int
    gpus_share: float = 1.0  # of the GPUs in service that jobs are seen to use
    shifts: tuple[float, ...] = (0.0,) * len(LEVELS)  # decades, level by level
    median_error: float = 0.0  # decades, of the medians before the correction
    covered: float = 0.0  # share of the starts within the interval before the correction

    @property
    def is_known(self) -> bool:
        return self.answers >= ENOUGH

    def corrected(self, forecast: WaitForecast) -> WaitForecast:
        """The forecast with each quantile moved; a wait below a minute is never made shorter, and longer by minutes."""
        if not self.is_known:
            return forecast
        moved = [
            max(wait_s, FLOOR_S) * 10**shift if shift > 0 else wait_s * 10**shift
            for wait_s, shift in zip(forecast.wait_s, self.shifts, strict=True)
        ]
        return of_quantiles(forecast.asked_s, np.minimum(moved, max(HORIZON_S, *forecast.wait_s)), forecast.remarks)


@dataclass(frozen=True, slots=True)
class _Said:
    """Answers as columns, and what came: shape (n,) and (n, n_levels)."""

    truth_s: Floats  # inf where the job has not started yet
    quantiles_s: Floats

    @property
    def error(self) -> float:
        middle = self.quantiles_s[:, LEVELS.index(0.5)]
        return float(np.median(np.abs(_log(np.minimum(self.truth_s, HORIZON_S)) - _log(middle))))


def fit(
    queue: Queue, settings: SchedulerSettings, past: Past, rng: Generator, instants: int = 40, samples: int = 16
) -> Fit:
    """Ask at `instants` of the last weeks, each time about a few jobs. Without enough history nothing is corrected."""
    seed = int(rng.integers(2**32))
    tried = {}
    for share in SHARES:
        tried[share] = _ask(queue, settings, past, np.random.default_rng(seed), max(8, instants // 2), samples, share)
    best = min(SHARES, key=lambda share: (round(tried[share].error, 2) if len(tried[share].truth_s) else 0.0, -share))
    said = _ask(queue, settings, past, np.random.default_rng(seed + 1), instants, samples, best)
    n = len(said.truth_s)
    if n < ENOUGH:
        return Fit(queue.now_s, n)
    low, high = (said.quantiles_s[:, LEVELS.index(level)] for level in (0.1, 0.9))
    inside = (said.truth_s >= np.floor(low)) & (said.truth_s <= np.maximum(high, FLOOR_S))
    return Fit(queue.now_s, n, best, shifts_of(said.truth_s, said.quantiles_s), said.error, float(inside.mean()))


def shifts_of(truth_s: Floats, quantiles_s: Floats) -> tuple[float, ...]:
    """Decades by which each level's quantile is to be moved: that quantile of the errors, rounded outward."""
    errors = _log(np.minimum(truth_s, HORIZON_S))[:, None] - _log(quantiles_s)
    n = len(errors)
    found = []
    for place, level in enumerate(LEVELS):
        rank = np.ceil((n + 1) * level) if level >= 0.5 else np.floor((n + 1) * level)
        found.append(float(np.sort(errors[:, place])[int(np.clip(rank, 1, n)) - 1]))
    return tuple(np.clip(found, -WIDEST, WIDEST).tolist())


def _ask(
    queue: Queue, settings: SchedulerSettings, past: Past, rng: Generator, instants: int, samples: int, share: float
) -> _Said:
    truths: list[float] = []
    quantiles: list[Floats] = []
    for now_s in _instants(past, rng, instants):
        then, known = queue_at(past, now_s, queue), before(past, now_s)
        asked = _some(past, then, rng)
        while asked:
            scene = with_share(scene_of(next(iter(asked)), then, settings, known, rng, samples), share)
            here = [job for job in asked if scene.partitions.issuperset(job.partitions)]
            for job, starts in zip(here, scene.starts(here), strict=True):
                start_s = asked.pop(job)
                if not np.isinf(starts).all():
                    truths.append(start_s - now_s)
                    quantiles.append(np.array(of_samples(now_s, np.minimum(starts - now_s, HORIZON_S)).wait_s))
    return _Said(np.array(truths), np.array(quantiles).reshape(len(truths), len(LEVELS)))


def with_share(scene: Scene, share: float) -> Scene:
    """The same scene on a part of its GPUs, but no fewer than are in use."""
    held = sum(job.gpus for job in scene.jobs if job.is_running)
    return replace(scene, total_gpus=max(1, held, round(scene.total_gpus * share)))


def _instants(past: Past, rng: Generator, instants: int) -> Floats:
    """Drawn from the later half of the past, so that each has a past of its own; in order."""
    if not len(past.jobs):
        return np.empty(0)
    begin_s = past.until_s - min(past.span_s / 2, 14 * DAY_S)
    return np.sort(rng.uniform(begin_s, past.until_s, instants))


def queue_at(past: Past, now_s: float, like: Queue) -> Queue:
    """The queue of an instant, on the nodes of today; of priorities nothing is known but who came first."""
    jobs = past.jobs
    came = np.where(np.isfinite(jobs.eligible_s), jobs.eligible_s, jobs.submit_s)
    there = np.flatnonzero((came <= now_s) & ~(jobs.end_s <= now_s))
    return Queue(now_s, tuple(_job(past, int(row), now_s) for row in there), like.nodes, like.partitions, like.cluster)


def _job(past: Past, row: int, now_s: float) -> QueuedJob:
    jobs = past.jobs
    runs = bool(jobs.start_s[row] <= now_s)
    limit_s = float(jobs.walltime_s[row])
    return QueuedJob(
        job_id=str(jobs.job_id[row]),
        user=str(jobs.user[row]),
        state=JobState.RUNNING if runs else JobState.PENDING,
        partitions=(str(jobs.partition[row]),),
        gpus=int(jobs.gpus[row]),
        cpus=int(jobs.cpus[row]),
        nodes=max(1, int(jobs.nodes[row])),
        walltime_s=limit_s if np.isfinite(limit_s) else None,
        submit_s=float(jobs.submit_s[row]),
        eligible_s=float(np.fmax(jobs.eligible_s[row], jobs.submit_s[row])),
        start_s=float(jobs.start_s[row]) if runs else None,
    )


def before(past: Past, now_s: float) -> Past:
    """What was known at an instant: the jobs that had come, and how long those had run that were over."""
    jobs = past.jobs
    over = np.flatnonzero(jobs.end_s <= now_s)
    run_times = RunTimes.of(jobs.user[over], jobs.partition[over], jobs.duration_s[over], jobs.walltime_s[over])
    return Past(jobs.take(np.flatnonzero(jobs.submit_s <= now_s)), now_s, run_times)


def _some(past: Past, queue: Queue, rng: Generator) -> dict[QueuedJob, float]:
    """A few waiting jobs, each with its start; one that is still to start counts as starting never."""
    waiting = [job for job in queue.waiting() if job.gpus]
    picked = rng.permutation(len(waiting))[:MOST_JOBS]
    start_of = dict(zip(past.jobs.job_id.tolist(), past.jobs.start_s.tolist(), strict=True))
    found = {waiting[place]: start_of[waiting[place].job_id] for place in picked}
    return {job: start_s if np.isfinite(start_s) else np.inf for job, start_s in found.items()}


def _log(wait_s: Floats) -> Floats:
    return np.log10(np.maximum(wait_s, FLOOR_S))
