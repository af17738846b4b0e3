"""An application as it was measured: how long its steps truly take on each GPU type, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator

from perdure.errors import InputError
from perdure.model.profiles import EpochProfile, RateProfile, StepProfile
from perdure.throughput.speed import Floats

Layout = tuple[int, ...]  # GPUs on each node


class Speed(Protocol):
    """Seconds of a step on one GPU type."""

    @property
    def smallest_local(self) -> int: ...

    @property
    def largest_local(self) -> int: ...

    @property
    def single(self) -> float:
        """Examples a second of one GPU at its largest batch."""

    @property
    def most_gpus(self) -> int:
        """As far as was measured."""

    def step_s(self, layout: Layout, local_batch: int, /) -> tuple[float, float]:
        """Seconds of a step and of its synchronising; NaN where nothing near was measured."""

    def largest_local_on(self, layout: Layout, /) -> int:
        """The largest batch of a GPU there."""


@dataclass(frozen=True, slots=True)
class RatedSpeed:
    """Steps a second by GPUs, and whether they are on one node; a batch is whatever the job uses."""

    per_s: Mapping[tuple[int, bool], float]
    smallest_local: int = 1
    largest_local: int = 1

    @property
    def single(self) -> float:
        return self.per_s.get((1, True), np.nan)

    @property
    def most_gpus(self) -> int:
        return max((gpus for (gpus, _), rate in self.per_s.items() if rate > 0), default=0)

    def step_s(self, layout: Layout, _local_batch: int) -> tuple[float, float]:
        """As `Speed`; of GPUs on several nodes that were measured on one only, that rate."""
        gpus = sum(layout)
        rate = self.per_s.get((gpus, len(layout) == 1), self.per_s.get((gpus, True), 0.0))
        return (1.0 / rate, 0.0) if rate > 0 else (np.nan, np.nan)

    def largest_local_on(self, _layout: Layout) -> int:
        return self.largest_local


@dataclass(slots=True)
class MeasuredSpeed:
    """Seconds of a step on one GPU type, between what was measured."""

    smallest_local: int
    largest_local: int
    single: float  # examples a second of one GPU at its largest batch
    laid: Mapping[Layout, tuple[Floats, Floats]]  # local batches, and step and sync seconds (n, 2), by layout
    points: Floats  # nodes, GPUs, local batch of steps of any layout (n, 3)
    seconds: Floats  # their step and sync seconds (n, 2)
    between: LinearNDInterpolator | None = field(default=None, repr=False)
    known: dict[tuple[Layout, int], tuple[float, float]] = field(default_factory=dict, repr=False)

    @property
    def most_gpus(self) -> int:
        return int(self.points[:, 1].max())

    def step_s(self, layout: Layout, local_batch: int) -> tuple[float, float]:
        """Seconds of a step and of its synchronising; NaN where nothing near was measured."""
        asked = layout, local_batch
        if asked not in self.known:
            self.known[asked] = self._step_s(layout, local_batch)
        return self.known[asked]

    def largest_local_on(self, layout: Layout) -> int:
        """The largest batch that was measured on these GPUs: what their memory holds."""
        found = self.laid.get(turned(layout))
        if found is not None:
            return int(found[0][-1])
        wide = (self.points[:, 0] >= len(layout)) & (self.points[:, 1] >= sum(layout))
        return int(self.points[wide, 2].max()) if wide.any() else self.largest_local

    def _step_s(self, layout: Layout, local_batch: int) -> tuple[float, float]:
        found = self.laid.get(turned(layout))
        if found is not None:
            batches, seconds = found
            if not batches[0] <= local_batch <= batches[-1]:
                return np.nan, np.nan
            return tuple(float(np.interp(local_batch, batches, column)) for column in seconds.T)  # type: ignore[return-value]
        if self.between is None:
            if np.linalg.matrix_rank(self.points - self.points[0]) < self.points.shape[1]:
                return np.nan, np.nan  # nothing is between points of one plane, as of one node
            self.between = LinearNDInterpolator(self.points, self.seconds)
        step, sync = self.between([len(layout), sum(layout), local_batch])[0]
        return float(step), float(sync)


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


def applications(steps: StepProfile, epochs: EpochProfile, wanted: Iterable[str]) -> dict[str, Application]:
    """The wanted applications. Raises `InputError`, naming the application, where a profile lacks one."""
    return {name: _application(name, steps, epochs) for name in sorted(set(wanted))}


def rated_applications(rates: RateProfile, wanted: Iterable[str]) -> dict[str, Application]:
    """The wanted kinds of jobs, each with work of one step, and saving a hundred times on its way.

    Raises `InputError`, naming the kind, where a profile lacks one.
    """
    return {name: _rated(name, rates) for name in sorted(set(wanted))}


def turned(layout: Layout) -> Layout:
    """The layout that stands for all that differ by where one begins to count nodes.

    >>> turned((4, 1, 2))
    (1, 2, 4)
    """
    return min(layout[place:] + layout[:place] for place in range(len(layout)))


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


def _application(name: str, steps: StepProfile, epochs: EpochProfile) -> Application:
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
    speed = {kind: _speed(name, kind, steps) for kind in kinds}
    iterations = None if epochs.iteration is None else epochs.iteration[kept]
    return Application(name, batches, progress, told[1], told[2], speed, iterations)


def _speed(name: str, kind: str, steps: StepProfile) -> MeasuredSpeed:
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
    if (1,) not in laid:
        what = "no step on a single GPU was measured"
        raise InputError(f"application {name!r} on {kind}", what, "Add one: the speeds of GPU types are compared by it")
    told = placement != ""
    points = np.column_stack([steps.nodes[own], steps.gpus[own], batch])
    unique, means = _means(points[told], seconds[told])
    points, seconds = np.concatenate([unique, points[~told]]), np.concatenate([means, seconds[~told]])
    alone = laid[1,]
    single = float(alone[0].max() / alone[1][:, 0].max())
    return MeasuredSpeed(int(batch[told].min()), int(batch[told].max()), single, laid, points, seconds)


def _means(points: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Each point once, with the mean of its seconds."""
    unique, place = np.unique(points, axis=0, return_inverse=True)
    count = np.bincount(place.ravel())
    return unique, np.column_stack([np.bincount(place.ravel(), column) / count for column in seconds.T])
