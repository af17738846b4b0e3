"""Replays jobs that have work instead of a running time, under a policy that gives them shares round by round.

Between rounds nothing starts. A job that is given another share first restarts, and then works at the speed that was
measured for its application there; at the end of each epoch and of each round it chooses its batch again, by what has
been learned of it. What it sees of its steps is all that the policy knows of its speed. An attempt that fails is lost
from its last epoch on, and comes back if the retry policy says so. Of two jobs that share their GPUs each is as slow as
beside the other for the whole round, even where that ends before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs
from perdure.scheduling.elastic import ElasticJob, ElasticPolicy, ElasticView, GpuType, Share, SuspendingPolicy
from perdure.simulation.elastic_plan import ElasticError, check_plan, gpus_by_type, kept_speed
from perdure.simulation.retry_hook import Again, FailedRun, Retry
from perdure.throughput.application import Application, Layout
from perdure.throughput.colocation import Colocation
from perdure.throughput.goodput import ROUNDING, BatchLimits, StatisticalEfficiency, best_batch
from perdure.throughput.learned import Fits, learning
from perdure.throughput.speed import Floats
from perdure.throughput.traits import Traits

_MOST_ROUNDS = 1_000_000
_MOST_GPUS = 64  # of one job: as far as the profiles go
MANY = 1 << 40


@dataclass(frozen=True, slots=True)
class ElasticResult:
    """Jobs as columns (n_jobs,); times in seconds, as in the trace."""

    policy: str
    submit_s: Floats
    start_s: Floats
    end_s: Floats
    asked_gpus: NDArray[np.int64]
    alone_s: Floats  # that it would run on the GPUs it asked for, with the batch it asked for
    restarts: NDArray[np.int64]
    gpu_s: Floats  # that it held GPUs, restarts included; half of it where it shared them
    restart_gpu_s: Floats  # of which it restarted
    attempts: NDArray[np.int64]
    passed: NDArray[np.bool_]  # how the last attempt ended
    rounds: int
    total_gpus: int
    types: tuple[GpuType, ...]
    held_gpu_s: Floats  # of `gpu_s`, on each type (n_jobs, n_types)
    alone_on_s: Floats  # as `alone_s`, on each type (n_jobs, n_types); infinite where it does not run
    use: tuple[tuple[float, tuple[int, ...]], ...]  # since when so many GPUs of each type were given
    gaps: tuple[float, ...] = ()  # how far, at most, plans were from the best where a solver ran out of time

    @property
    def jct_s(self) -> Floats:
        """From submit to end."""
        return self.end_s - self.submit_s


@dataclass(slots=True)
class _Running:
    """One job: the truth, and what the policy sees of it."""

    application: Application
    traits: Traits
    seen: ElasticJob
    batch: int  # asked for
    adaptive: bool  # it chooses its batch itself
    layout: Layout = ()
    kind: str = ""
    local_batch: int = 0
    accumulated: int = 0
    epoch: int = 0
    progress: float = 0.0
    restarting_s: float = 0.0
    started_s: float = np.nan
    end_s: float = np.nan
    gpu_s: float = 0.0
    held_gpu_s: dict[str, float] = field(default_factory=dict)  # of these, by GPU type
    restart_gpu_s: float = 0.0
    fails: Sequence[float] = ()  # shares of the work left at its beginning, after which each attempt fails
    attempts: int = 0  # that are over
    fails_at: float = np.inf  # progress
    failed_s: float = np.nan  # when the present attempt failed
    ran_s: float = 0.0  # that the present attempt held GPUs
    batches: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)  # shared: batches chosen before
    whole_seconds: bool = False  # an epoch ends at one
    resume_s: float | None = None  # where jobs are suspended
    known_rate: tuple[tuple[object, ...], float] = ((), 0.0)  # by what it depends on
    steps_per_s: float = 0.0  # alone, as things are
    kept: float = 1.0  # of its speed, beside the job that it shares its GPUs with
    suspended: Share | None = None  # where it is in memory

    def give(self, share: Share | None, kept: float, types: Sequence[GpuType], now_s: float) -> None:
        """Take what the policy gives, and what is left of the speed there; other GPUs than before cost a restart."""
        before, self.kept = self.seen.share, kept
        self.seen.share = share
        if share is None:
            if before is not None:
                self._yield()
            return
        if before is not None and before.spot == share.spot:
            return
        if not self._resumes(share, before):
            self.seen.restarts += not np.isnan(self.started_s)
            self.restarting_s = self.traits.restart_s
        self.started_s = now_s if np.isnan(self.started_s) else self.started_s
        self.suspended = share.spot
        kind = types[share.gpu_type]
        self.kind = kind.name
        self.layout = tuple(gpus for _, gpus in share.where) or _packed(share.gpus, kind)
        self.seen.restarting = self.restarting_s > 0
        self._choose_batch()

    def _resumes(self, share: Share, before: Share | None) -> bool:
        """Whether it goes on where it was suspended; what is left of a restart is still to be done."""
        if self.resume_s is None or before is not None or self.suspended != share.spot:
            return False
        self.restarting_s = max(self.restarting_s, min(self.resume_s, self.traits.restart_s))
        return True

    def begin_attempt(self) -> None:
        """Come, or come back after a failure."""
        self.failed_s, self.fails_at, self.ran_s = np.nan, np.inf, 0.0
        if self.attempts < len(self.fails):
            self.fails_at = self.progress + self.fails[self.attempts] * (self.application.work - self.progress)

    def _yield(self) -> None:
        """Have no GPUs."""
        self.seen.share, self.layout, self.seen.restarting = None, (), False

    def _fail(self, instant_s: float) -> None:
        """Lose what was done since the last epoch, where the checkpoint is."""
        self.failed_s, self.attempts = instant_s, self.attempts + 1
        self.progress = float(self.application.progress[self.epoch])
        self.suspended = None
        self._yield()

    def run(self, now_s: float, seconds: float) -> None:
        """Run it for `seconds`, or to its end."""
        if not self.layout:
            return
        shared = self.seen.share is not None and self.seen.share.shared_with is not None
        gpus, lost_s = sum(self.layout) / (2 if shared else 1), min(self.restarting_s, seconds)
        self.restarting_s -= lost_s
        self.seen.restarting = self.restarting_s > 0
        self.restart_gpu_s += lost_s * gpus
        left_s = seconds - lost_s
        if left_s > 0:
            self._rate()
            self.seen.steps_per_s = self.steps_per_s * self.kept
        while left_s > 0 and np.isnan(self.end_s):
            rate, epoch_end = self._rate(), float(self.application.progress[self.epoch + 1])
            aim = min(epoch_end, max(self.fails_at, self.progress))
            if self.progress + rate * left_s < aim:
                self.progress, left_s = self.progress + rate * left_s, 0.0
            else:
                took_s = (aim - self.progress) / rate
                left_s -= round(took_s) if self.whole_seconds else took_s
                if aim < epoch_end:
                    self._fail(now_s + seconds - left_s)
                    break
                self.progress, self.epoch = aim, self.epoch + 1
                if self.epoch == len(self.application.progress) - 1:
                    self.end_s, self.attempts = now_s + seconds - left_s, self.attempts + 1
                    break
            if self.adaptive:
                self._choose_batch()
        self.seen.left = 1.0 - self.progress / self.application.work
        self.ran_s += seconds - left_s
        self.gpu_s += (seconds - left_s) * gpus
        self.held_gpu_s[self.kind] = self.held_gpu_s.get(self.kind, 0.0) + (seconds - left_s) * gpus
        self.seen.gpu_s = self.gpu_s

    def _rate(self) -> float:
        """Progress a second as things are; what it sees of its steps and gradients is noted."""
        alone = self.seen.share is not None and self.seen.share.shared_with is None
        asked = self.kind, self.layout, self.local_batch, self.accumulated, self.epoch, alone
        if self.known_rate[0] != asked:
            self.known_rate = asked, self._new_rate()
        return self.known_rate[1] * self.kept

    def _new_rate(self) -> float:
        application, gpus = self.application, sum(self.layout)
        batch = gpus * self.local_batch * (self.accumulated + 1)
        square, variance = application.gradients(batch, self.epoch)
        step_s, sync_s = application.speed[self.kind].step_s(self.layout, self.local_batch)
        if not step_s > 0:
            where = f"application {application.name!r} on {self.kind}"
            raise InputError(
                where, f"no step of {self.local_batch} examples on {self.layout} was measured", "Extend the profile"
            )
        learned = self.seen.learned
        learned.gradients = square, variance
        share = self.seen.share
        assert share is not None
        if share.shared_with is None:
            learned.speed[share.gpu_type].see((len(self.layout), gpus, self.local_batch), step_s, step_s - sync_s)
        self.steps_per_s = 1 / ((step_s + self.accumulated * (step_s - sync_s)) * self.traits.slowdown)
        return gain(square, variance, batch / application.base_batch) * self.steps_per_s

    def _choose_batch(self) -> None:
        share, learned, application = self.seen.share, self.seen.learned, self.application
        assert share is not None
        speed, nodes, gpus = application.speed[self.kind], len(self.layout), sum(self.layout)
        most = min(speed.largest_local_on(self.layout), self.traits.largest_local or MANY)
        model = learned.speed[share.gpu_type].model() if self.adaptive else None
        if not self.adaptive:
            self.local_batch, self.accumulated = split(self.batch, gpus, most, application.base_batch)
        elif model is None or learned.gradients is None:
            batch = max(application.base_batch, speed.smallest_local * gpus)
            self.local_batch, self.accumulated = split(batch, gpus, most, application.base_batch)
        else:
            asked = id(model), learned.gradients, nodes, gpus, most
            if asked not in self.batches:
                worth = StatisticalEfficiency.from_gradients(*learned.gradients, application.base_batch)
                limits = BatchLimits(speed.smallest_local, most, application.largest_batch)
                best = best_batch(model, worth, limits, nodes, gpus)
                self.batches[asked] = int(best.local_batch), int(best.accumulated)
            self.local_batch, self.accumulated = self.batches[asked]
        passes = gpus * (self.accumulated + 1)
        self.local_batch = min(self.local_batch, most, application.largest_batch // passes)


@dataclass(frozen=True, slots=True)
class _Truth:
    """The oracle of one job."""

    job: _Running
    types: Sequence[GpuType]

    def step_s(self, gpu_type: int, gpus: int) -> float:
        application, kind = self.job.application, self.types[gpu_type]
        layout, speed = _packed(gpus, kind), application.speed[kind.name]
        most = min(speed.largest_local_on(layout), self.job.traits.largest_local or MANY)
        each = ceil(self.job.batch / gpus - ROUNDING)
        accumulated = max(ceil(each / most - ROUNDING) - 1, int(gpus == 1))
        local = ceil(each / (accumulated + 1) - ROUNDING)
        step_s, sync_s = speed.step_s(layout, min(local, application.largest_batch // (gpus * (accumulated + 1))))
        return step_s + accumulated * (step_s - sync_s)

    def steps_left(self) -> float:
        return self.job.application.steps_left(self.job.batch, self.job.epoch)

    def most_gpus(self) -> int:
        smallest = min(self.job.application.speed[kind.name].smallest_local for kind in self.types)
        return self.job.traits.most_gpus or self.job.batch // smallest


def _packed(gpus: int, kind: GpuType) -> Layout:
    """On as few nodes as hold them."""
    whole, rest = divmod(gpus, kind.gpus_per_node)
    return (kind.gpus_per_node,) * whole + (rest,) * (rest > 0)


def gain(square: float, variance: float, scale: float) -> float:
    """How many steps of the base batch a step of `scale` times that batch is worth.

    >>> gain(1.0, 3.0, 4.0)
    2.2857142857142856
    """
    return (variance + square) / (variance / scale + square)


def split(batch: float, gpus: int, most: int, base_batch: int) -> tuple[int, int]:
    """The batch of each GPU in a pass, and how many passes are only added up.

    >>> split(512, 4, 100, 128)
    (64, 1)
    """
    each = ceil(batch / gpus - ROUNDING)
    accumulated = ceil(each / most - ROUNDING) - 1
    if gpus == 1 and batch > base_batch:
        accumulated = max(1, accumulated)
    return ceil(each / (accumulated + 1) - ROUNDING), accumulated


def gpu_types(cluster: Cluster) -> tuple[GpuType, ...]:
    """The types of a cluster, in its order. Raises `InputError` for one whose nodes differ."""
    found = []
    for name in dict.fromkeys(cluster.gpu_type.tolist()):
        sizes = cluster.gpus[cluster.gpu_type == name]
        if len(np.unique(sizes)) > 1:
            raise InputError(f"GPU type {name!r}", "its nodes differ in their GPUs", "Give each size a type of its own")
        found.append(GpuType(name, len(sizes), int(sizes[0])))
    return tuple(found)


def replay_elastic(
    jobs: AdaptiveJobs,
    cluster: Cluster,
    policy: ElasticPolicy,
    known: Mapping[str, Application],
    traits: Mapping[str, Traits],
    retry: Retry | None = None,
    *,
    pairs: Colocation | None = None,
    whole_seconds: bool = False,
) -> ElasticResult:
    """Replay all jobs; `retry` None lets each that failed come back at once. With `whole_seconds` epochs end at one.

    `pairs` tells how fast jobs are that share GPUs; without it they take turns.

    Raises `InputError` for what the profiles lack, `ElasticError` for a plan that is not valid."""
    types, fits, batches = gpu_types(cluster), Fits(), dict[tuple[object, ...], tuple[int, int]]()
    _must_be_profiled(types, known)
    rows = range(len(jobs))
    running = [_begun(jobs, row, types, known, traits, fits, batches, adaptive=policy.adaptive) for row in rows]
    resume_s = policy.resume_s if isinstance(policy, SuspendingPolicy) else None
    for each in running:
        each.whole_seconds, each.resume_s, each.seen.oracle = whole_seconds, resume_s, _Truth(each, types)
    view, now_s, rounds = ElasticView(types, {}, 0.0, _fastest_first(types, known), pairs or Colocation()), 0.0, 0
    coming = [(float(submit_s), row) for row, submit_s in enumerate(jobs.submit_s)]  # a heap, as it is sorted
    there, use = dict[int, ElasticJob](), list[tuple[float, tuple[int, ...]]]()
    view.jobs = there
    while coming or there:
        if not there:  # nothing can change before the next job: go to the round before it
            now_s = max(now_s, policy.round_s * ((coming[0][0] - ROUNDING) // policy.round_s))
        for row in list(there):
            running[row].run(now_s, policy.round_s)
            if (again_s := _comes_again(running[row], row, retry)) is not None:
                heappush(coming, (again_s, row))
            if again_s is not None or not np.isnan(running[row].end_s):
                del there[row]
        now_s += policy.round_s
        while coming and coming[0][0] <= now_s:
            _, row = heappop(coming)
            running[row].begin_attempt()
            there[row] = running[row].seen
        view.now_s, rounds, plan = now_s, rounds + 1, dict[int, Share]()
        if there:
            plan = dict(policy.plan(view))
            check_plan(policy.name, plan, view)
            for row in there:
                running[row].give(plan.get(row), kept_speed(row, plan, view), types, now_s)
        given = gpus_by_type(plan, len(types))
        if not use or use[-1][1] != given:
            use.append((now_s, given))
        if rounds > _MOST_ROUNDS:
            raise ElasticError(f"policy {policy.name}", f"{len(there)} jobs never end", "Fix the policy")
    return _result(policy, jobs, running, rounds, types, use)


def _result(
    policy: ElasticPolicy,
    jobs: AdaptiveJobs,
    over: Sequence[_Running],
    rounds: int,
    types: tuple[GpuType, ...],
    use: Sequence[tuple[float, tuple[int, ...]]],
) -> ElasticResult:
    return ElasticResult(
        policy.name,
        jobs.submit_s,
        np.array([each.started_s for each in over]),
        np.array([each.end_s for each in over]),
        jobs.gpus,
        np.array([each.seen.alone_s.min() for each in over]),
        np.array([each.seen.restarts for each in over], np.int64),
        np.array([each.gpu_s for each in over]),
        np.array([each.restart_gpu_s for each in over]),
        np.array([each.attempts for each in over], np.int64),
        np.array([np.isnan(each.failed_s) for each in over]),
        rounds,
        sum(kind.gpus for kind in types),
        types,
        np.array([[each.held_gpu_s.get(kind.name, 0.0) for kind in types] for each in over]),
        np.array([each.seen.alone_s for each in over]),
        tuple(use),
        tuple(getattr(policy, "gaps", ())),
    )


def _comes_again(job: _Running, row: int, retry: Retry | None) -> float | None:
    """When a job comes back whose attempt has just failed; None for another, and for one that is over now."""
    if np.isnan(job.failed_s):
        return None
    failed = FailedRun(row, job.attempts, -1, job.failed_s, job.ran_s)
    answer = Again() if retry is None else retry(failed)
    if answer is None:
        job.end_s = job.failed_s
        return None
    return job.failed_s + answer.delay_s


def _begun(
    jobs: AdaptiveJobs,
    row: int,
    types: Sequence[GpuType],
    known: Mapping[str, Application],
    traits: Mapping[str, Traits],
    fits: Fits,
    batches: dict[tuple[object, ...], tuple[int, int]],
    *,
    adaptive: bool,
) -> _Running:
    application, rigid = known[str(jobs.application[row])], jobs.is_rigid(row)
    if jobs.steps is not None:
        application = application.of_steps(float(jobs.steps[row]))
    trait, gpus = traits.get(application.name, Traits()), int(jobs.gpus[row])
    batch = min(max(int(jobs.batch[row]), application.base_batch), application.largest_batch)
    speed = [application.speed[each.name] for each in types]
    fits_in = trait.largest_local or MANY
    local = {
        kind.name: (each.smallest_local, min(each.largest_local, fits_in))
        for kind, each in zip(types, speed, strict=True)
    }
    adaptive = adaptive and not rigid
    if adaptive and trait.batch is not None:
        batch, adaptive = trait.batch, False
    single = np.array([each.single for each in speed])
    # A batch below the base would be worth more than its examples: nobody trains so.
    largest = max(int(jobs.batch[row]), application.base_batch)
    learned = learning(application.name, application.base_batch, largest, local, single, fits)
    most = min(
        _MOST_GPUS, trait.most_gpus or MANY, max(application.largest_batch // each.smallest_local for each in speed)
    )
    alone_s = np.array([_alone_on_s(application, gpus, batch, kind) for kind in types]) * trait.slowdown
    submit_s, work = float(jobs.submit_s[row]), application.work
    wide = application.largest_batch
    seen = ElasticJob(
        submit_s,
        gpus,
        trait.expected_restart_s,
        most,
        wide,
        learned,
        work,
        alone_s,
        rigid,
        application=application.name,
    )
    fails = jobs.fails[row] if jobs.fails else ()
    return _Running(application, trait, seen, batch, adaptive, fails=fails, batches=batches)


def _fastest_first(types: Sequence[GpuType], known: Mapping[str, Application]) -> Sequence[int]:
    """Places of the types, by how fast one GPU is against the fastest, in the mean of the applications."""
    single = np.array([[each.speed[kind.name].single for kind in types] for each in known.values()])
    speed = np.nanmean(single / np.nanmax(single, axis=1, keepdims=True), axis=0)
    return [int(place) for place in np.argsort(-speed, kind="stable")]


def _must_be_profiled(types: Sequence[GpuType], known: Mapping[str, Application]) -> None:
    for application in known.values():
        for kind in types:
            if kind.name not in application.speed:
                there = ", ".join(application.speed)
                what = f"no steps on GPU type {kind.name!r} were measured, only on {there}"
                raise InputError(f"application {application.name!r}", what, "Name the types of --cluster like these")


def _alone_on_s(application: Application, gpus: int, batch: int, kind: GpuType) -> float:
    """Seconds on this many GPUs of one type, all with this batch; infinite where they are not there or not measured."""
    if gpus > kind.gpus:
        return np.inf
    speed = application.speed[kind.name]
    layout = _packed(gpus, kind)
    local, accumulated = split(batch, gpus, speed.largest_local_on(layout), application.base_batch)
    step_s, sync_s = speed.step_s(layout, local)
    if not step_s > 0:
        return np.inf
    each_s = step_s + accumulated * (step_s - sync_s)
    gains = application.gains(gpus * local * (accumulated + 1))
    return float(np.sum(np.diff(application.progress) / gains) * each_s)
