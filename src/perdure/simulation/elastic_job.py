"""One job of a replay in rounds: how it truly works on what it is given, and what a policy sees of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isnan

import numpy as np

from perdure.errors import InputError
from perdure.model.profiles import AdaptiveJobs
from perdure.scheduling.elastic import ElasticJob, GpuType, Share
from perdure.throughput.application import Application
from perdure.throughput.goodput import ROUNDING, BatchLimits, StatisticalEfficiency, best_batch
from perdure.throughput.learned import Fits, learning
from perdure.throughput.measured_speed import Layout
from perdure.throughput.traits import Traits

MOST_GPUS = 64  # of one job: as far as the profiles go
MANY = 1 << 40


@dataclass(slots=True)
class RunningJob:
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
    stopped: bool = False  # early, by the tuner of its app

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
            self.seen.restarts += not isnan(self.started_s)
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

    def stop(self, now_s: float) -> None:
        """End it before its work is done."""
        self.end_s, self.stopped, self.attempts = max(now_s, self.seen.submit_s), True, self.attempts + 1
        self._yield()

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
        saved = self.application.progress
        if self.application.steady:  # its epochs were not counted
            self.epoch = int(np.searchsorted(saved, self.fails_at, "right")) - 1
        self.progress = float(saved[self.epoch])
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
        while left_s > 0 and isnan(self.end_s):
            rate, until = self._rate(), self._same_until()
            aim = min(until, max(self.fails_at, self.progress))
            if self.progress + rate * left_s < aim:
                self.progress, left_s = self.progress + rate * left_s, 0.0
            else:
                took_s = (aim - self.progress) / rate
                left_s -= round(took_s) if self.whole_seconds else took_s
                if aim < until:
                    self._fail(now_s + seconds - left_s)
                    break
                self.progress, self.epoch = aim, self.epoch + 1
                if aim == self.application.work:
                    self.end_s, self.attempts = now_s + seconds - left_s, self.attempts + 1
                    break
            if self.adaptive:
                self._choose_batch()
        self.seen.left = 1.0 - self.progress / self.application.work
        self.ran_s += seconds - left_s
        self.gpu_s += (seconds - left_s) * gpus
        self.held_gpu_s[self.kind] = self.held_gpu_s.get(self.kind, 0.0) + (seconds - left_s) * gpus
        self.seen.gpu_s = self.gpu_s

    def _same_until(self) -> float:
        """The progress up to which its speed stays as it is: the end of the epoch, where these differ."""
        whole = self.application.steady and not (self.adaptive or self.whole_seconds)
        return self.application.work if whole else float(self.application.progress[self.epoch + 1])

    def undisturbed_s(self) -> float:
        """For how long it surely does nothing but work as it does, or wait; 0 where that is not known."""
        if not self.layout:
            return np.inf
        until = self._same_until()
        if until < self.application.work:
            return 0.0
        return self.restarting_s + (min(until, self.fails_at) - self.progress) / self._rate()

    def _rate(self) -> float:
        """Progress a second as things are; what it sees of its steps and gradients is noted."""
        alone = self.seen.share is not None and self.seen.share.shared_with is None
        epoch = 0 if self.application.steady else self.epoch
        asked = self.kind, self.layout, self.local_batch, self.accumulated, epoch, alone
        if self.known_rate[0] != asked:
            self.known_rate = asked, self._new_rate()
        return self.known_rate[1] * self.kept

    def _new_rate(self) -> float:
        application = self.application
        replicas = sum(self.layout) // application.stages(self.kind)
        batch = replicas * self.local_batch * (self.accumulated + 1)
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
            learned.speed[share.gpu_type].see((len(self.layout), replicas, self.local_batch), step_s, step_s - sync_s)
        self.steps_per_s = 1 / ((step_s + self.accumulated * (step_s - sync_s)) * self.traits.slowdown)
        return gain(square, variance, batch / application.base_batch) * self.steps_per_s

    def _choose_batch(self) -> None:
        share, learned, application = self.seen.share, self.seen.learned, self.application
        assert share is not None
        speed, nodes, gpus = application.speed[self.kind], len(self.layout), sum(self.layout)
        if application.pipeline is not None:  # nobody chooses it
            self.local_batch, self.accumulated = application.pipeline.replica_batch, 0
            return
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
class JobOracle:
    """The oracle of one job."""

    job: RunningJob
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
        return min(self.job.traits.most_gpus or self.job.batch // smallest, max(self.job.seen.reach))


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


def begun(
    jobs: AdaptiveJobs,
    row: int,
    types: Sequence[GpuType],
    known: Mapping[str, Application],
    traits: Mapping[str, Traits],
    fits: Fits,
    batches: dict[tuple[object, ...], tuple[int, int]],
    *,
    adaptive: bool,
) -> RunningJob:
    application, rigid = known[str(jobs.application[row])], jobs.is_rigid(row)
    if jobs.steps is not None:
        application = application.of_steps(float(jobs.steps[row]))
    elif jobs.work is not None:
        application = application.of_steps(application.work * float(jobs.work[row]))
    trait, gpus = traits.get(application.name, Traits()), int(jobs.gpus[row])
    batch = min(max(int(jobs.batch[row]), application.base_batch), application.largest_batch)
    speed = [application.speed[each.name] for each in types]
    fits_in = trait.largest_local or MANY
    local = {
        kind.name: (each.smallest_local, min(each.largest_local, fits_in))
        for kind, each in zip(types, speed, strict=True)
    }
    pipeline = application.pipeline
    scales = jobs.keeps_batch(row) and not rigid and pipeline is None  # strongly: other GPUs, the same batch
    adaptive = adaptive and not jobs.keeps_batch(row)
    if adaptive and trait.batch is not None:
        batch, adaptive = trait.batch, False
    single = np.array([each.single for each in speed])
    # A batch below the base would be worth more than its examples: nobody trains so.
    least, largest = application.base_batch, max(int(jobs.batch[row]), application.base_batch)
    wide = application.largest_batch
    if scales:
        least = largest = wide = batch
    stages = [] if pipeline is None else [application.stages(kind.name) for kind in types]
    each = None if pipeline is None else pipeline.replica_batch
    learned = learning(application.name, least, largest, local, single, fits, stages, each)
    most = min(MOST_GPUS, trait.most_gpus or MANY, max(wide // each.smallest_local for each in speed))
    alone_s = np.array([alone_on_s(application, gpus, batch, kind) for kind in types]) * trait.slowdown
    submit_s, work = float(jobs.submit_s[row]), application.work
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
        name=str(jobs.job_id[row]),
        reach=application.reach([kind.name for kind in types]),
    )
    fails = jobs.fails[row] if jobs.fails else ()
    return RunningJob(application, trait, seen, batch, adaptive, fails=fails, batches=batches)


def alone_on_s(application: Application, gpus: int, batch: int, kind: GpuType) -> float:
    """Seconds on this many GPUs of one type, all with this batch; infinite where they are not there or not measured."""
    if gpus > kind.gpus or gpus > application.reach([kind.name])[0]:
        return np.inf
    speed, pipeline = application.speed[kind.name], application.pipeline
    layout = _packed(gpus, kind)
    if pipeline is None:
        local, accumulated = split(batch, gpus, speed.largest_local_on(layout), application.base_batch)
    else:
        gpus //= max(application.stages(kind.name), 1)  # replicas
        local, accumulated = pipeline.replica_batch, 0
    step_s, sync_s = speed.step_s(layout, local)
    if not step_s > 0:
        return np.inf
    each_s = step_s + accumulated * (step_s - sync_s)
    gains = application.gains(gpus * local * (accumulated + 1))
    return float(np.sum(np.diff(application.progress) / gains) * each_s)
