"""Answers about the past, held against what came: how far this site's what-if runs are off, and the correction for it.

At instants of the last weeks the queue is put together again from accounting, asked about with what was known then,
and the answers are compared with the starts that followed. The correction is conformal, level by level: a quantile is
moved by what it would have had to be moved by then to hold as often as it promises.

Source: Y. Romano, E. Patterson and E. Candès, "Conformalized quantile regression", NeurIPS 2019, eq. 8, for each level.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from msgspec import Struct
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.model.jobs import JobState
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.waits.conformal import score_quantiles
from perdure.waits.forecast import LEVELS, WaitForecast, of_quantiles, of_samples
from perdure.waits.past import DAY_S, Past
from perdure.waits.queue import Queue, QueuedJob
from perdure.waits.rollout import HORIZON_S, Scene, scene_of
from perdure.waits.run_times import RunTimes
from perdure.waits.unfinished import with_unfinished

FLOOR_S = 60.0  # errors of shorter waits are the scheduler's cycles, not ours
ENOUGH = 30  # answers that a correction can be read from
WIDEST = 1.5  # decades by which a quantile is moved at most
LEAST_WAITING = 0.02  # of the time: where jobs wait for less, it does not show how many GPUs they may use
MUCH_WORSE = 0.05  # decades: by so much answers may be off more, and it is noise
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

    truth_s: Floats
    at_least: NDArray[np.bool_]  # the job waits still: it is only known to take no less
    quantiles_s: Floats

    @property
    def error(self) -> float:
        off = _log(np.minimum(self.truth_s, HORIZON_S)) - _log(self._at(0.5))
        return float(np.median(np.where(self.at_least, np.maximum(off, 0.0), np.abs(off))))

    @property
    def covered(self) -> float:
        """Of those of which it is known; a wait that goes on beyond the interval is."""
        low, high = np.floor(self._at(0.1)), np.maximum(self._at(0.9), FLOOR_S)
        known = ~self.at_least | (self.truth_s > high)
        inside = (self.truth_s >= low) & (self.truth_s <= high)
        return float(inside[known].mean()) if known.any() else 0.0

    def _at(self, level: float) -> Floats:
        return np.asarray(self.quantiles_s[:, LEVELS.index(level)], np.float64)


def fit(
    queue: Queue, settings: SchedulerSettings, past: Past, rng: Generator, instants: int = 40, samples: int = 16
) -> Fit:
    """Ask at `instants` of the last weeks, each time about a few jobs. Without enough history nothing is corrected.

    The jobs of `queue` are there too: without them the last instants would hold none but short ones.
    """
    past = with_unfinished(past, queue.jobs)
    seed = int(rng.integers(2**32))
    seen, best = share_in_use(past, sum(node.gpus for node in queue.nodes if node.is_usable)), 1.0
    if seen < 1:
        few = max(8, instants // 2)
        less, whole = (
            _ask(queue, settings, past, np.random.default_rng(seed), few, samples, share) for share in (seen, 1.0)
        )
        if len(less.truth_s) and less.error <= whole.error + MUCH_WORSE:  # else it is limits that keep GPUs idle
            best = seen
    said = _ask(queue, settings, past, np.random.default_rng(seed + 1), instants, samples, best)
    n = len(said.truth_s)
    if n < ENOUGH:
        return Fit(queue.now_s, n)
    shifts = shifts_of(said.truth_s, said.quantiles_s, said.at_least)
    return Fit(queue.now_s, n, best, shifts, said.error, said.covered)


def share_in_use(past: Past, gpus: int) -> float:
    """The share of the GPUs in service that jobs have held at the most while others waited; 1 where few ever waited.

    A hundredth of that time may have seen more: accounting dates some ends late.
    """
    jobs = past.jobs
    started, ended = (np.where(np.isfinite(at), at, past.until_s) for at in (jobs.start_s, jobs.end_s))
    came = np.where(np.isfinite(jobs.eligible_s), jobs.eligible_s, jobs.submit_s)
    times = np.concatenate([started, ended, came, started])
    n = len(jobs)
    used = np.concatenate([jobs.gpus, -jobs.gpus, np.zeros(2 * n, np.int64)])
    waiting = np.concatenate([np.zeros(2 * n, np.int64), np.ones(n, np.int64), -np.ones(n, np.int64)])
    order = np.argsort(times, kind="stable")
    lasted = np.diff(times[order], append=past.until_s)
    lasted[np.cumsum(waiting[order]) <= 0] = 0.0
    if not n or not gpus or lasted.sum() < LEAST_WAITING * past.span_s:
        return 1.0
    used = np.cumsum(used[order])
    by_use = np.argsort(-used, kind="stable")
    above = np.cumsum(lasted[by_use]) > lasted.sum() / 100
    return float(min(1.0, used[by_use[int(np.argmax(above))]] / gpus))


def shifts_of(truth_s: Floats, quantiles_s: Floats, at_least: NDArray[np.bool_] | None = None) -> tuple[float, ...]:
    """Decades by which each level's quantile is to be moved: that quantile of the errors, rounded outward.

    Waits that are only known to be no shorter (`at_least`) count until there (`conformal.score_quantiles`).
    """
    errors = _log(np.minimum(truth_s, HORIZON_S))[:, None] - _log(quantiles_s)
    n = len(errors)
    open_ended, weights = np.zeros(n, bool) if at_least is None else at_least, np.ones(n)
    found = [
        float(score_quantiles(errors[:, place], open_ended, weights).at((level,))[0])
        for place, level in enumerate(LEVELS)
    ]
    return tuple(np.clip(found, -WIDEST, WIDEST).tolist())


def _ask(
    queue: Queue, settings: SchedulerSettings, past: Past, rng: Generator, instants: int, samples: int, share: float
) -> _Said:
    truths: list[float] = []
    at_least: list[bool] = []
    quantiles: list[Floats] = []
    for now_s in _instants(past, rng, instants):
        then, known = queue_at(past, now_s, queue), before(past, now_s)
        asked = _some(past, then, rng)
        while asked:
            scene = with_share(scene_of(next(iter(asked)), then, settings, known, rng, samples), share)
            here = [job for job in asked if scene.partitions.issuperset(job.partitions)]
            if _is_overfull(scene):
                asked = {job: start_s for job, start_s in asked.items() if job not in here}
                continue
            for job, starts in zip(here, scene.starts(here), strict=True):
                start_s = asked.pop(job)
                if not np.isinf(starts).all():
                    at_least.append(np.isinf(start_s))
                    truths.append(min(start_s, past.until_s) - now_s)
                    quantiles.append(np.array(of_samples(now_s, np.minimum(starts - now_s, HORIZON_S)).wait_s))
    n = len(truths)
    return _Said(np.array(truths), np.array(at_least, bool), np.array(quantiles).reshape(n, len(LEVELS)))


def _is_overfull(scene: Scene) -> bool:
    """Whether jobs seem to hold more than there is: one that was put back seems to run between its attempts, too."""
    return bool(scene.sizes) and sum(job.gpus for job in scene.jobs if job.is_running) > sum(scene.sizes)


def with_share(scene: Scene, share: float) -> Scene:
    """The same scene on a part of its GPUs, but no fewer than are in use; the last nodes lose theirs."""
    held = sum(job.gpus for job in scene.jobs if job.is_running)
    total = max(1, held, round(scene.total_gpus * share))
    used, left, sizes = Counter[int](), max(0, sum(scene.sizes) - total), list(scene.sizes)
    for node, gpus in (each for shares in scene.held.values() for each in shares):
        used[node] += gpus
    for node in reversed(range(len(sizes))):
        lost = min(left, sizes[node] - used[node])
        sizes[node], left = sizes[node] - lost, left - lost
    found = replace(scene, total_gpus=total, sizes=tuple(sizes))
    return found.without_those_that_never_fit() if sizes else found


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
    return Queue(
        now_s, tuple(job_at(past, int(row), now_s) for row in there), like.nodes, like.partitions, like.cluster
    )


def job_at(past: Past, row: int, now_s: float) -> QueuedJob:
    """A job of the past as it was in the queue of an instant."""
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
    """What accounting knew at an instant: the jobs that were over."""
    over = past.jobs.take(np.flatnonzero(past.jobs.end_s <= now_s))
    return Past(over, now_s, RunTimes.of(over.user, over.partition, over.duration_s, over.walltime_s))


def _some(past: Past, queue: Queue, rng: Generator) -> dict[QueuedJob, float]:
    """A few waiting jobs, each with its start; one that is still to start counts as starting never."""
    waiting = [job for job in queue.waiting() if job.gpus]
    picked = rng.permutation(len(waiting))[:MOST_JOBS]
    start_of = dict(zip(past.jobs.job_id.tolist(), past.jobs.start_s.tolist(), strict=True))
    found = {waiting[place]: start_of[waiting[place].job_id] for place in picked}
    return {job: start_s if np.isfinite(start_s) else np.inf for job, start_s in found.items()}


def _log(wait_s: Floats) -> Floats:
    return np.log10(np.maximum(wait_s, FLOOR_S))
