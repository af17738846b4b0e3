"""An application as it was measured: how long its steps truly take on each GPU type, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.profiles import EpochProfile, RateProfile, StepProfile
from perdure.throughput.measured_speed import Layout, MeasuredSpeed, PipelineSpeed, RatedSpeed, Speed, turned
from perdure.throughput.pipeline import PUBLISHED, Pipeline
from perdure.throughput.speed import Floats


@dataclass(frozen=True, slots=True)
class Application:
    """An application with all that was measured of it.

    Its work is counted in steps of the base batch: `progress` (n_epochs + 1,) is what is done at the end of each epoch,
    from 0. `square` and `variance` of the gradients have (n_batches, n_epochs).
    """

    name: str
    batches: NDArray[np.int64]
    progress: Floats
    square: Floats
    variance: Floats
    speed: Mapping[str, Speed]  # by GPU type
    iterations: Floats | None = None  # steps made by the end of each epoch (n_batches, n_epochs)
    steady: bool = False  # gradients are the same in all epochs
    pipeline: Pipeline | None = None  # None: each GPU holds all of the model

    @property
    def base_batch(self) -> int:
        return int(self.batches[0])

    @property
    def largest_batch(self) -> int:
        return int(self.batches[-1])

    @property
    def work(self) -> float:
        """All of its work."""
        return float(self.progress[-1])

    def stages(self, kind: str) -> int:
        """GPUs of a replica on a GPU type; 0 where it does not run."""
        return 1 if self.pipeline is None else self.pipeline.stages.get(kind, 0)

    def reach(self, kinds: Iterable[str]) -> list[int]:
        """The most GPUs of each type: as far as was measured, and of a pipeline as far as batches were."""
        if self.pipeline is None:
            return [self.speed[kind].most_gpus for kind in kinds]
        replicas = self.largest_batch // self.pipeline.replica_batch
        return [min(self.speed[kind].most_gpus, replicas * self.stages(kind)) for kind in kinds]

    def on(self, kinds: Iterable[str]) -> Application:
        """The same where it is asked of GPU types on which a pipeline does not run: at no speed there."""
        if self.pipeline is None:
            return self
        each = self.pipeline.replica_batch
        return replace(self, speed={**dict.fromkeys(kinds, RatedSpeed({}, each, each)), **self.speed})

    def of_steps(self, steps: float) -> Application:
        """The same with other work."""
        return replace(self, progress=self.progress * (steps / self.work))

    def gradients(self, batch: float, epoch: int) -> tuple[float, float]:
        """The squared norm of the mean gradient, and its variance, in an epoch counted from 0."""
        square = float(np.interp(batch, self.batches, self.square[:, epoch]))
        return square, float(np.interp(batch, self.batches, self.variance[:, epoch]))

    def steps_left(self, batch: float, epoch: int) -> float:
        """Steps of this batch after the end of `epoch`, counted from 0; 1 in the last. Raises without iterations."""
        if self.iterations is None:
            what = "the profiles do not tell the steps of its epochs"
            raise InputError(f"application {self.name!r}", what, "Add the column iteration, or choose another policy")
        done, all_ = (np.interp(batch, self.batches, self.iterations[:, at]) for at in (epoch, -1))
        return float(all_ - done) if epoch < self.iterations.shape[1] - 1 else 1.0

    def gains(self, batch: float) -> Floats:
        """How many steps of the base batch a step of this one is worth in each epoch (n_epochs,)."""
        place = float(np.interp(batch, self.batches, np.arange(len(self.batches))))
        low, high = int(np.floor(place)), int(np.ceil(place))
        part = place - low
        square, variance = ((1 - part) * each[low] + part * each[high] for each in (self.square, self.variance))
        return np.asarray((variance + square) / (variance * self.base_batch / batch + square), float)


def applications(
    steps: StepProfile, epochs: EpochProfile, wanted: Iterable[str], pipelines: Mapping[str, Pipeline] = PUBLISHED
) -> dict[str, Application]:
    """The wanted applications. Of those in `pipelines`, `steps` are forward passes of a micro-batch through a stage.

    Raises `InputError`, naming the application, where a profile lacks one.
    """
    return {name: _application(name, steps, epochs, pipelines.get(name)) for name in sorted(set(wanted))}


def rated_applications(rates: RateProfile, wanted: Iterable[str]) -> dict[str, Application]:
    """The wanted kinds of jobs, each with work of one step, and saving a hundred times on its way.

    Raises `InputError`, naming the kind, where a profile lacks one.
    """
    return {name: _rated(name, rates) for name in sorted(set(wanted))}


def _rated(name: str, rates: RateProfile) -> Application:
    own = rates.application == name
    if not own.any():
        raise InputError(f"application {name!r}", "the profiles have no rates for it", "Add it, or leave it out")
    wrong = own & ~(np.isfinite(rates.steps_per_s) & (rates.steps_per_s >= 0))
    if wrong.any():
        kind = rates.gpu_type[wrong][0]
        raise InputError(f"application {name!r} on {kind}", "its rate is not steps a second", "Leave it out")
    speed: dict[str, Speed] = {}
    for kind in np.unique(rates.gpu_type[own]).tolist():
        rows = own & (rates.gpu_type == kind)
        where = zip(rates.gpus[rows].tolist(), rates.together[rows].tolist(), strict=True)
        speed[kind] = RatedSpeed(dict(zip(where, rates.steps_per_s[rows].tolist(), strict=True)))
    largest = int(rates.gpus[own].max())
    batches = np.array([1, max(largest, 2)])
    saves = np.linspace(0.0, 1.0, 101)
    return Application(name, batches, saves, np.ones((2, 100)), np.zeros((2, 100)), speed, steady=True)


def _application(name: str, steps: StepProfile, epochs: EpochProfile, pipeline: Pipeline | None) -> Application:
    own = epochs.application == name
    if not own.any():
        raise InputError(f"application {name!r}", "the profiles do not say how it learns", "Add it, or leave it out")
    if not (steps.application == name).any():
        raise InputError(f"application {name!r}", "the profiles have no steps for it", "Add it, or leave it out")
    batches = np.unique(epochs.batch[own])
    rows = [np.flatnonzero(own & (epochs.batch == batch)) for batch in batches]
    rows = [row[np.argsort(epochs.progress[row], kind="stable")] for row in rows]
    count = min(map(len, rows))
    kept = np.array([row[:count] for row in rows])
    told = (epochs.progress[kept], epochs.grad_square[kept], epochs.grad_variance[kept])
    if not all(np.isfinite(column).all() for column in told):
        raise InputError(f"application {name!r}", "its profile of epochs has a value that is not a number", "Fix it")
    if not ((told[1] >= 0) & (told[2] >= 0) & (told[1] + told[2] > 0)).all():
        what = "in its profile of epochs a gradient's square or variance is below 0, or both are 0"
        raise InputError(f"application {name!r}", what, "Fix it")
    progress = np.concatenate([[0.0], told[0].min(axis=0)])
    if not (np.diff(progress) > 0).all():
        raise InputError(f"application {name!r}", "its epochs do not go on, one after the other", "Fix their progress")
    kinds = np.unique(steps.gpu_type[steps.application == name]).tolist()
    speed: dict[str, Speed] = {}
    if pipeline is None:
        speed.update({kind: _speed(name, kind, steps) for kind in kinds})
    else:
        speed.update({kind: _replicas(name, kind, steps, pipeline) for kind in kinds if kind in pipeline.stages})
        if pipeline.replica_batch > batches[-1]:
            what = (
                f"a replica has {pipeline.replica_batch} examples, and the profiles tell of batches up to {batches[-1]}"
            )
            raise InputError(f"application {name!r}", what, "Name fewer micro-batches")
    iterations = None if epochs.iteration is None else epochs.iteration[kept]
    if iterations is not None and not np.isfinite(iterations).all():
        iterations = None  # not told of all epochs
    return Application(name, batches, progress, told[1], told[2], speed, iterations, pipeline=pipeline)


def _replicas(name: str, kind: str, steps: StepProfile, pipeline: Pipeline) -> PipelineSpeed:
    stages = pipeline.stages[kind]
    return PipelineSpeed(pipeline, stages, _speed(name, kind, steps, stages))


def _speed(name: str, kind: str, steps: StepProfile, fewest: int = 1) -> MeasuredSpeed:
    own = np.flatnonzero((steps.application == name) & (steps.gpu_type == kind))
    seconds = np.column_stack([steps.step_s[own], steps.sync_s[own]])
    wrong = ~(np.isfinite(seconds) & (seconds >= 0)).all(axis=1)
    if wrong.any():
        raise InputError(f"application {name!r} on {kind}", "a measured step has no time", "Leave that step out")
    batch, placement = steps.local_batch[own], steps.placement[own]
    laid: dict[Layout, tuple[Floats, Floats]] = {}
    for text in np.unique(placement[placement != ""]).tolist():
        rows = np.flatnonzero(placement == text)
        rows = rows[np.argsort(batch[rows], kind="stable")]
        laid[turned(tuple(map(int, text.split(","))))] = batch[rows], seconds[rows]
    if (fewest,) not in laid:
        what = "no step on a single GPU was measured" if fewest == 1 else f"no step on {fewest} GPUs of a node is told"
        raise InputError(f"application {name!r} on {kind}", what, "Add one: the speeds of GPU types are compared by it")
    told = placement != ""
    points = np.column_stack([steps.nodes[own], steps.gpus[own], batch])
    unique, means = _means(points[told], seconds[told])
    points, seconds = np.concatenate([unique, points[~told]]), np.concatenate([means, seconds[~told]])
    alone = laid[fewest,]
    single = float(alone[0].max() / alone[1][:, 0].max())
    return MeasuredSpeed(int(batch[told].min()), int(batch[told].max()), single, laid, points, seconds)


def _means(points: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Each point once, with the mean of its seconds."""
    unique, place = np.unique(points, axis=0, return_inverse=True)
    count = np.bincount(place.ravel())
    return unique, np.column_stack([np.bincount(place.ravel(), column) / count for column in seconds.T])
