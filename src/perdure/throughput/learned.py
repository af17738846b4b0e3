"""What has been learned of a job's speed while it ran: steps on each GPU type, and the models fitted to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perdure.throughput.fit import StepTimes, fit
from perdure.throughput.goodput import BatchLimits, StatisticalEfficiency, best_batch, goodput
from perdure.throughput.speed import PARAMETERS, Floats, SpeedModel

SURE = 0.05  # a model that foretells a new step within this part of it is not fitted again
Place = tuple[int, int, int]  # nodes, GPUs (of a pipeline: replicas), local batch
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
    single: Floats  # examples a second on one GPU (of a pipeline: of one replica) of each type, measured before it ran
    speed: Sequence[LearnedSpeed]  # by GPU type
    gradients: tuple[float, float] | None = None  # square and variance
    stages: Sequence[int] = ()  # GPUs of a pipeline's replica on each type, 0 where it does not run; (): it is none
    replica_batch: int | None = None  # of a pipeline: the examples of one replica, which nobody chooses

    def most_gpus(self) -> int:
        """The most GPUs that it has been seen on; of a pipeline, replicas."""
        return max(each.most_gpus() for each in self.speed)


def expected_goodput(
    jobs: Sequence[LearnedJob],
    gpus: NDArray[np.int64],
    gpu_type: NDArray[np.int64],
    gpus_per_node: NDArray[np.int64],
) -> Floats:
    """What jobs are expected to make of configurations (n_jobs, n_configs), with the batch that is best there.

    `gpus` and `gpu_type` have (n_configs,), `gpus_per_node` (n_types,). On a type without a model, that of another type
    is taken, times the ratio of the two on one GPU; of a pipeline, for as many replicas. A job that has never run has
    NaN, and a pipeline where the GPUs are no whole replicas.
    """
    found = np.full((len(jobs), len(gpus)), np.nan)
    own = np.zeros(found.shape, bool)
    stages = stages_of(jobs, len(gpus_per_node))
    replicas = whole_replicas(gpus, gpu_type, stages)
    for kind, size in enumerate(gpus_per_node.tolist()):
        told = [
            (row, job, model) for row, job in enumerate(jobs) if job.gradients and (model := job.speed[kind].model())
        ]
        if not told:
            continue
        rows = np.array([row for row, _, _ in told])
        count = np.maximum(replicas[rows], 1)
        nodes = -(-count * stages[rows, kind, None] // size)
        own_jobs = [job for _, job, _ in told]
        largest = [job.largest_batch for job in own_jobs]
        # Types have configurations alike, and here all count as of this one.
        _, once, place = np.unique(np.concatenate([count, nodes]), axis=1, return_index=True, return_inverse=True)
        models = [model for _, _, model in told]
        value = _best(own_jobs, models, kind, nodes[:, once], count[:, once], largest)[:, place.ravel()]
        value[replicas[rows] == 0] = np.nan
        ratio = np.array([job.single[gpu_type] / job.single[kind] for _, job, _ in told])
        here = np.broadcast_to(gpu_type == kind, value.shape)
        take = here | np.isnan(found[rows])
        found[rows] = np.where(take & ~own[rows], value * ratio, found[rows])
        own[rows] |= here
    return found


def stages_of(jobs: Sequence[LearnedJob], types: int) -> NDArray[np.int64]:
    """GPUs of a replica of each job on each type (n_jobs, n_types): of those that are no pipeline, 1."""
    return np.array([job.stages or (1,) * types for job in jobs], np.int64).reshape(len(jobs), types)


def whole_replicas(
    gpus: NDArray[np.int64], gpu_type: NDArray[np.int64], stages: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many replicas configurations (n_configs,) hold of each job (n_jobs, n_configs): 0 where they are not whole.

    A pipeline of 2 GPUs on the first type and 8 on the second:

    >>> whole_replicas(np.array([1, 2, 4, 4, 8]), np.array([0, 0, 0, 1, 1]), np.array([[2, 8]])).tolist()
    [[0, 1, 2, 0, 1]]
    """
    each = stages[:, gpu_type]
    count, rest = np.divmod(gpus, np.maximum(each, 1))
    return np.where((rest == 0) & (each > 0), count, 0)


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
    """The best goodput of each job in each configuration of one GPU type; `nodes` and `gpus` may differ by job.

    Jobs of which the same is known are computed once: of many jobs, few applications are in few epochs.
    """
    asked = zip(jobs, models, largest_batch, strict=True)
    alike = [
        (id(model), job.gradients, most, job.base_batch, job.local[kind], tuple(job.stages), job.replica_batch)
        for job, model, most in asked
    ]
    first = dict[object, int]()
    same = np.array([first.setdefault(key, len(first)) for key in alike])
    rows = np.unique(same, return_index=True)[1].tolist()
    jobs, models, largest_batch = ([column[row] for row in rows] for column in (jobs, models, largest_batch))
    nodes, gpus = (each[rows] if each.ndim > 1 else each for each in (nodes, gpus))

    def column(values: Sequence[float]) -> Floats:
        return np.array(values, float)[:, None]

    speed = SpeedModel(*(column([float(getattr(model, name)) for model in models]) for name in PARAMETERS))
    base = column([job.base_batch for job in jobs])
    square, variance = np.array([job.gradients for job in jobs], float).T
    worth = StatisticalEfficiency.from_gradients(square[:, None], variance[:, None], base)
    smallest, largest = np.array([job.local[kind] for job in jobs], float).T
    limits = BatchLimits(smallest[:, None], largest[:, None], column(largest_batch))
    found = best_batch(speed, worth, limits, nodes, gpus).goodput
    fixed = [job.replica_batch for job in jobs]
    if any(fixed):
        own = goodput(speed, worth, nodes, gpus, column([each or 1 for each in fixed]))
        found = np.where(np.array([each is not None for each in fixed])[:, None], own, found)
    return np.asarray(found[same], float)


def learning(
    name: str,
    base_batch: int,
    largest_batch: int,
    local: Mapping[str, tuple[int, int]],
    single: Floats,
    fits: Fits,
    stages: Sequence[int] = (),
    replica_batch: int | None = None,
) -> LearnedJob:
    """A job of which only the speed on one GPU of each type is known; `local` is in the order of the types."""
    speed = [LearnedSpeed(f"{name} on {kind}", fits) for kind in local]
    ranges = list(local.values())
    return LearnedJob(base_batch, largest_batch, ranges, single, speed, stages=stages, replica_batch=replica_batch)
