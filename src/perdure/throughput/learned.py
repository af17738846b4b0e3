"""What has been learned of a job's speed while it ran: steps on each GPU type, and the models fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perdure.throughput.fit import StepTimes, fit
from perdure.throughput.goodput import BatchLimits, StatisticalEfficiency, best_batch
from perdure.throughput.speed import PARAMETERS, Floats, SpeedModel

SURE = 0.05  # a model that foretells a new step within this part of it is not fitted again
Place = tuple[int, int, int]  # nodes, GPUs, local batch
Fits = dict[tuple[str, tuple[tuple[Place, tuple[float, float]], ...]], SpeedModel]


@dataclass(slots=True)
class LearnedSpeed:
    """Steps of one job on one GPU type, and the model that they tell; `fits` is shared by jobs that see the same."""

    kind: str  # application and GPU type
    fits: Fits = field(repr=False)
    steps: dict[Place, tuple[float, float]] = field(default_factory=dict)  # step and gradient seconds
    fitted: SpeedModel | None = None
    stale: bool = False

    def see(self, place: Place, step_s: float, gradient_s: float) -> None:
        """Note a step; the model is fitted when it is asked for next, if it did not foretell this one."""
        if place in self.steps:
            return
        new = all(seen[:2] != place[:2] for seen in self.steps)
        self.steps[place] = step_s, gradient_s
        if self.fitted is None or new:
            self.stale = True
        elif not self.stale:
            foretold = float(self.fitted.step_s(*place))
            self.stale = abs(foretold - step_s) > SURE * step_s

    def model(self) -> SpeedModel | None:
        """None before the first step."""
        if self.stale:
            seen = tuple(sorted(self.steps.items()))
            if (self.kind, seen) not in self.fits:
                nodes, gpus, local = np.array([place for place, _ in seen], np.int64).T
                step_s, gradient_s = np.array([seconds for _, seconds in seen], float).T
                self.fits[self.kind, seen] = fit(StepTimes(nodes, gpus, local.astype(float), gradient_s, step_s)).model
            self.fitted, self.stale = self.fits[self.kind, seen], False
        return self.fitted

    def most_gpus(self) -> int:
        """The most GPUs that a step was seen on."""
        return max((gpus for _, gpus, _ in self.steps), default=0)


@dataclass(slots=True)
class LearnedJob:
    """What is known of one job: its speed on each GPU type, and what its gradients last told."""

    base_batch: int
    largest_batch: int  # that it may use in a forecast
    local: Sequence[tuple[int, int]]  # smallest and largest local batch on each GPU type
    single: Floats  # examples a second on one GPU of each type, measured before it ran
    speed: Sequence[LearnedSpeed]  # by GPU type
    gradients: tuple[float, float] | None = None  # square and variance

    def most_gpus(self) -> int:
        """The most GPUs that it has been seen on."""
        return max(each.most_gpus() for each in self.speed)


def expected_goodput(
    jobs: Sequence[LearnedJob],
    gpus: NDArray[np.int64],
    gpu_type: NDArray[np.int64],
    gpus_per_node: NDArray[np.int64],
) -> Floats:
    """What jobs are expected to make of configurations (n_jobs, n_configs), with the batch that is best there.

    `gpus` and `gpu_type` have (n_configs,), `gpus_per_node` (n_types,). On a type without a model, that of another type
    is taken, times the ratio of the two on one GPU. A job that has never run has NaN.
    """
    found = np.full((len(jobs), len(gpus)), np.nan)
    own = np.zeros(found.shape, bool)
    for kind, size in enumerate(gpus_per_node.tolist()):
        told = [
            (row, job, model) for row, job in enumerate(jobs) if job.gradients and (model := job.speed[kind].model())
        ]
        if not told:
            continue
        rows = np.array([row for row, _, _ in told])
        nodes = -(-gpus // size)
        own_jobs = [job for _, job, _ in told]
        largest = [job.largest_batch for job in own_jobs]
        value = _best(own_jobs, [model for _, _, model in told], kind, nodes, gpus, largest)
        ratio = np.array([job.single[gpu_type] / job.single[kind] for _, job, _ in told])
        here = np.broadcast_to(gpu_type == kind, value.shape)
        take = here | np.isnan(found[rows])
        found[rows] = np.where(take & ~own[rows], value * ratio, found[rows])
        own[rows] |= here
    return found


def goodput_on(
    jobs: Sequence[LearnedJob],
    largest_batch: Sequence[int],
    kind: int,
    nodes: NDArray[np.int64],
    gpus: NDArray[np.int64],
) -> Floats:
    """What jobs are expected to make of GPUs of one type (n_jobs, n_configs), with batches up to the largest given.

    A job that has never run on this type has NaN.
    """
    found = np.full((len(jobs), len(gpus)), np.nan)
    told = [(row, job, model) for row, job in enumerate(jobs) if job.gradients and (model := job.speed[kind].model())]
    if told:
        rows = [row for row, _, _ in told]
        largest = [largest_batch[row] for row in rows]
        found[rows] = _best([job for _, job, _ in told], [model for _, _, model in told], kind, nodes, gpus, largest)
    return found


def _best(
    jobs: Sequence[LearnedJob],
    models: Sequence[SpeedModel],
    kind: int,
    nodes: NDArray[np.int64],
    gpus: NDArray[np.int64],
    largest_batch: Sequence[int],
) -> Floats:
    """The best goodput of each job in each configuration of one GPU type."""

    def column(values: Sequence[float]) -> Floats:
        return np.array(values, float)[:, None]

    speed = SpeedModel(*(column([float(getattr(model, name)) for model in models]) for name in PARAMETERS))
    base = column([job.base_batch for job in jobs])
    square, variance = np.array([job.gradients for job in jobs], float).T
    worth = StatisticalEfficiency.from_gradients(square[:, None], variance[:, None], base)
    smallest, largest = np.array([job.local[kind] for job in jobs], float).T
    limits = BatchLimits(smallest[:, None], largest[:, None], column(largest_batch))
    return best_batch(speed, worth, limits, nodes, gpus).goodput


def learning(
    name: str, base_batch: int, largest_batch: int, local: Mapping[str, tuple[int, int]], single: Floats, fits: Fits
) -> LearnedJob:
    """A job of which only the speed on one GPU of each type is known; `local` is in the order of the types."""
    speed = [LearnedSpeed(f"{name} on {kind}", fits) for kind in local]
    return LearnedJob(base_batch, largest_batch, list(local.values()), single, speed)
