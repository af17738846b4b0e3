"""The whole answer to "when will it start?": the forecast, what holds the job, and what would start sooner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.scheduling.slurm.site_limits import CPUS, GPUS, SiteLimits
from perdure.waits.alternatives import Alternative, Sooner, Tried, alternatives, may_be_sooner, sooner
from perdure.waits.awaited import doubts_on
from perdure.waits.forecast import WaitForecast, of_samples
from perdure.waits.hindcast import Fit, with_share
from perdure.waits.holds import HeldBy, HoldKind, hold_of, named
from perdure.waits.limits import amount, limit_in_the_way
from perdure.waits.own_errors import OwnErrors
from perdure.waits.past import Past
from perdure.waits.queue import Queue, QueuedJob
from perdure.waits.rollout import HORIZON_S, SAMPLES, Scene, counted_by, scene_of

FEW_SAMPLES = 11  # futures in which alternatives are tried
STAGES = ((3, 1), (5, 2), (FEW_SAMPLES, 0))  # futures, in how many of which one must be sooner to be tried in more
CROWDED = 5_000  # jobs; where more are there, all are given up that are not sooner in most of the first
MOST_JOBS = 500  # that are answered for in one go
FEW_DAYS = 7  # of history: with fewer, arrivals of other weekdays are not known


@dataclass(frozen=True, slots=True)
class AnswerBasis:
    """What answers rest on besides the queue."""

    settings: SchedulerSettings
    past: Past
    fit: Fit | None = None  # how far answers about the past are off; None while nobody has looked
    remarks: tuple[str, ...] = ()  # what could not be had, one sentence each
    is_watched: bool = False  # what is said is held against what comes, and shown next to it
    limits: SiteLimits = field(default_factory=SiteLimits)  # of QOS and accounts, in all partitions
    own: OwnErrors = field(default_factory=OwnErrors)  # how far answers that were given were off


@dataclass(frozen=True, slots=True)
class WaitAnswer:
    """What is said of one job that waits, or would."""

    job: QueuedJob
    hold: HeldBy
    forecast: WaitForecast | None  # None where nothing will start it as it is, or that is not simulated
    planned_s: float | None  # the resource manager's own plan
    sooner: tuple[Sooner, ...] = ()

    def to_json(self) -> dict[str, Any]:
        job, forecast = self.job, self.forecast
        return {
            "job": job.job_id,
            "user": job.user,
            "partitions": list(job.partitions),
            "gpus": job.gpus,
            "nodes": job.nodes,
            "walltime_s": job.walltime_s,
            "submitted_s": job.submit_s,
            "held_by": {
                "kind": str(self.hold.kind),
                "says": self.hold.says,
                "jobs_ahead": self.hold.ahead,
                "gpus_ahead": self.hold.ahead_gpus,
                "can_start": self.hold.can_start,
            },
            "start": None if forecast is None else _start_json(forecast),
            "planned_by_manager_s": self.planned_s,
            "sooner": [
                {
                    "change": each.alternative.change,
                    "options": each.alternative.options,
                    "start_s": each.start_s,
                    "gain_s": each.gain_s if np.isfinite(each.gain_s) else None,
                }
                for each in self.sooner
            ],
        }


def answer(
    job: QueuedJob,
    queue: Queue,
    site: AnswerBasis,
    rng: Generator,
    zone: tzinfo = UTC,
    *,
    with_alternatives: bool = True,
) -> WaitAnswer:
    """Ask the futures of the queue about a job of it, or about one that is not submitted yet (its id is "")."""
    hold = hold_of(job, queue, zone, site.limits)
    if not _is_asked(hold) or job.is_running:
        return WaitAnswer(job, hold, None, _planned(job, queue))
    scene = _scene(job, queue, site, rng)
    (start_s,) = scene.starts([counted_by(job, gpus=job.gpus > 0)])
    found = _answered(job, hold, (scene, start_s), queue, site)
    if found.forecast is None:
        return found
    may_change = hold.kind in (HoldKind.PRIORITY, HoldKind.RESOURCES, HoldKind.NOTHING, HoldKind.LIMIT)
    may_change &= with_alternatives and job.parts == 1
    better = _sooner(job, queue, site, scene, start_s, found.forecast, rng) if may_change else []
    return replace(found, sooner=tuple(better))


def answers(
    queue: Queue, site: AnswerBasis, rng: Generator, zone: tzinfo = UTC, most: int = MOST_JOBS
) -> list[WaitAnswer]:
    """What is said of each job that waits or is held, the first `most` that came; alternatives are not tried.

    Jobs that compete on the same nodes are asked about in the same futures.
    """
    waiting = sorted((job for job in queue.jobs if job.is_waiting or job.is_held), key=lambda job: job.submit_s)[:most]
    holds = {job: hold_of(job, queue, zone, site.limits) for job in waiting}
    starts: dict[QueuedJob, tuple[Scene, NDArray[np.float64]]] = {}
    for job in waiting:
        if job in starts or not _is_asked(holds[job]):
            continue
        scene = _scene(job, queue, site, rng)
        alike = [each for each in waiting if _is_asked(holds[each]) and _competes_in(each, scene)]
        asked = [counted_by(each, gpus=scene.counts_gpus) for each in alike]
        starts |= {each: (scene, row) for each, row in zip(alike, scene.starts(asked), strict=True)}
    return [_answered(job, holds[job], starts.get(job), queue, site) for job in waiting]


def _is_asked(hold: HeldBy) -> bool:
    """Whether the futures of the queue can tell when the job starts."""
    return hold.can_start and hold.is_simulated


def _competes_in(job: QueuedJob, scene: Scene) -> bool:
    return scene.counts_gpus == (job.gpus > 0) and scene.partitions.issuperset(job.partitions)


def _answered(
    job: QueuedJob, hold: HeldBy, found: tuple[Scene, NDArray[np.float64]] | None, queue: Queue, site: AnswerBasis
) -> WaitAnswer:
    planned = _planned(job, queue)
    if found is None:
        return WaitAnswer(job, hold, None, planned)
    scene, start_s = found
    forecast = _forecast(job, start_s, queue, site, scene, hold)
    return WaitAnswer(job, hold if forecast is not None else _never(hold), forecast, planned)


def _planned(job: QueuedJob, queue: Queue) -> float | None:
    return job.start_s if job.is_waiting and job.start_s is not None and job.start_s > queue.now_s else None


def _never(hold: HeldBy) -> HeldBy:
    says = hold.says if hold.kind is HoldKind.LIMIT else "it does not fit on the nodes in service"
    return replace(hold, kind=HoldKind.NEVER, can_start=False, says=says)


def _forecast(
    job: QueuedJob, start_s: NDArray[np.float64], queue: Queue, site: AnswerBasis, scene: Scene, hold: HeldBy
) -> WaitForecast | None:
    """None where nothing will start the job; one that starts in no future may come after all that is simulated."""
    if np.isinf(start_s).all() and not scene.fits(counted_by(job, gpus=scene.counts_gpus)):
        return None
    wait_s = _waits(start_s, queue)
    if hold.until_s is not None:
        wait_s = np.maximum(wait_s, hold.until_s - queue.now_s)
    doubts = _doubts(job, queue, site, scene, hold, queue.now_s + float(np.median(wait_s)))
    return _corrected(job, of_samples(queue.now_s, wait_s, (*site.remarks, *doubts)), site)


def _waits(start_s: NDArray[np.float64], queue: Queue) -> NDArray[np.float64]:
    return np.minimum(start_s - queue.now_s, HORIZON_S)


def _corrected(job: QueuedJob, told: WaitForecast, site: AnswerBasis) -> WaitForecast:
    """What futures tell of a job, corrected by how far such answers were off."""
    by_fit = told if site.fit is None else site.fit.corrected(told)
    return replace(site.own.corrected(by_fit, job), raw_s=told.wait_s)


def _scene(job: QueuedJob, queue: Queue, site: AnswerBasis, rng: Generator, samples: int = SAMPLES) -> Scene:
    scene = scene_of(job, queue, site.settings, site.past, rng, samples, site.limits)
    return scene if site.fit is None else with_share(scene, site.fit.gpus_share)


def _doubts(job: QueuedJob, queue: Queue, site: AnswerBasis, scene: Scene, hold: HeldBy, start_s: float) -> list[str]:
    """What the reader should know of this answer, which tells a start at that instant."""
    found = list(site.limits.remarks)
    if not scene.has_arrivals:
        found.append("no history of who comes: by the jobs that are there alone, as if nobody else came")
    elif not site.past.days:
        found.append(f"by a history of {site.past.span_s / 60:.0f} minutes alone")
    elif site.past.days < FEW_DAYS:
        found.append(f"by a history of {site.past.days} days alone: weekdays are not told apart")
    if not site.is_watched and not site.own.is_known and (site.fit is None or not site.fit.is_known):
        found.append("not yet held against this site's past starts: perdure when fit does that")
    found += _doubts_on_limits(job, queue, site.limits, scene, hold)
    found += doubts_on(job, queue, (each.job_id for each in scene.jobs)) if job.dependency else []
    kept = queue.reservation_in_the_way(job, start_s)
    if kept is not None:
        found.append(
            f"reservation {kept.name} of {named(kept.nodes)} begins in {(kept.begin_s - queue.now_s) / 3600:.1f} h, "
            "which is not simulated: if the job would still run then, it may take longer"
        )
    if job.parts > 1:
        where = "" if len(job.partitions) < 2 else f", in {job.partitions[0]}"
        found.append(f"its {job.parts} parts are simulated as one job, on equal parts of as many nodes{where}")
    if not scene.counts_gpus:
        found.append("jobs without GPUs are simulated by processors, without memory")
    return found


def _doubts_on_limits(job: QueuedJob, queue: Queue, limits: SiteLimits, scene: Scene, hold: HeldBy) -> list[str]:
    """What limits do that futures do not show."""
    if hold.kind is HoldKind.LIMIT and job.most_tasks is None:
        found = limit_in_the_way(job, queue, limits)
        counted = GPUS if scene.counts_gpus else CPUS
        if found is None or found.tres not in ("", counted):
            return ["the limit that holds it is not simulated: it may take longer"]
        there = {each.job_id for each in scene.jobs}
        elsewhere = [each.job_id for each in found.jobs if amount(each, found.tres) and each.job_id not in there]
        if elsewhere:
            return [
                f"jobs elsewhere count for its limit ({named(elsewhere)}), and are not simulated: it may take longer"
            ]
    if limits.associations and not limits.knows(job.account):
        return [f"accounting shows this user nothing of account {job.account}: its limits are not simulated"]
    return []


def _sooner(
    job: QueuedJob,
    queue: Queue,
    site: AnswerBasis,
    scene: Scene,
    start_s: NDArray[np.float64],
    forecast: WaitForecast,
    rng: Generator,
) -> list[Sooner]:
    """Alternatives in the same futures; those that compete on other nodes in futures of these."""
    scenes: list[tuple[Scene, list[Alternative]]] = [(scene, [])]
    for each in alternatives(job, queue):
        alike = next((its for one, its in scenes if one.partitions.issuperset(each.job.partitions)), None)
        if alike is None:
            scenes.append((_scene(each.job, queue, site, rng, FEW_SAMPLES), [each]))
        else:
            alike.append(each)
    found = []
    for own, alike in scenes:
        starts = _starts_before(own, [counted_by(each.job, gpus=job.gpus > 0) for each in alike], start_s)
        found += [
            Tried(each, its, _corrected(each.job, of_samples(queue.now_s, _waits(its, queue)), site))
            for each, its in zip(alike, starts, strict=True)
            if its is not None
        ]
    return sooner(start_s[:FEW_SAMPLES], forecast, found, queue.now_s)


def _starts_before(
    scene: Scene, jobs: Sequence[QueuedJob], start_s: NDArray[np.float64]
) -> list[NDArray[np.float64] | None]:
    """When each job starts in the first futures, where another has not started by then; None if it seems no sooner.

    Of one that is sooner in half of all futures, a fifth is given up.
    """
    starts = dict.fromkeys(range(len(jobs)), np.empty(0))
    tried = 0
    for most, sooner_in in STAGES[:-1] if len(scene.jobs) > CROWDED else STAGES:
        if not starts:
            break
        before_s = start_s[tried:most]
        more = scene.starts([jobs[row] for row in starts], range(tried, most), float(before_s.max()), before_s)
        starts = {row: np.append(its, new) for (row, its), new in zip(starts.items(), more, strict=True)}
        starts = {row: its for row, its in starts.items() if may_be_sooner(start_s[:most], its, sooner_in)}
        tried = most
    return [starts.get(row) for row in range(len(jobs))]


def _start_json(forecast: WaitForecast) -> dict[str, Any]:
    low_s, high_s = forecast.interval_s
    at = forecast.asked_s
    return {
        "asked_s": at,
        "median_s": at + forecast.median_s,
        "low_s": at + low_s,
        "high_s": at + high_s,
        "interval": 0.8,
        "wait_s": {"p10": low_s, "p50": forecast.median_s, "p90": high_s},
        "remarks": list(forecast.remarks),
    }
