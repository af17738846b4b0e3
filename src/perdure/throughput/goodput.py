"""Goodput: examples a second, each counted for what it is worth; and the batch that makes it highest.

What an example of a larger batch is worth against one of the base batch is its statistical efficiency.

Source: A. Qiao et al., "Pollux", OSDI 2021, sections 3 and 4.1; the candidates are those of its public code. The
gradient noise scale is that of S. McCandlish et al., "An empirical model of large-batch training", 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from perdure.throughput.speed import Floats, Numbers, SpeedModel

CANDIDATES = 50
ROUNDING = 1e-8  # a quotient that floating point puts this little above a whole number is that number

Part = TypeVar("Part", "SpeedModel", "StatisticalEfficiency", "BatchLimits")


@dataclass(frozen=True, slots=True)
class StatisticalEfficiency:
    """Progress per example, 1 at `base_batch` and less above it; fields broadcast like those of `SpeedModel`.

    `noise_scale` (examples) is the batch at which an example is worth half of what it is in the smallest batches. It
    grows as training goes on, so that large batches pay later.
    """

    noise_scale: Numbers
    base_batch: Numbers

    @classmethod
    def from_gradients(cls, square: Numbers, variance: Numbers, base_batch: Numbers) -> StatisticalEfficiency:
        """From the squared norm of the mean gradient, and its variance at `base_batch`.

        A mean gradient of 0 is pure noise: then any batch is worth its size.
        """
        square, variance = np.asarray(square, float), np.asarray(variance, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            noise = np.where(square > 0, base_batch * variance / square, np.inf)
        return cls(noise, base_batch)

    def efficiency(self, batch: Numbers) -> Floats:
        """In (0, 1] from `base_batch` up.

        >>> round(float(StatisticalEfficiency(noise_scale=1000.0, base_batch=128).efficiency(512)), 3)
        0.746
        """
        noise, base = np.asarray(self.noise_scale, float), np.asarray(self.base_batch, float)
        with np.errstate(invalid="ignore"):
            ratio = (noise + base) / (noise + batch)
        return np.where(np.isinf(noise), 1.0, ratio)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Batches that a job can use; each field broadcasts like those of `SpeedModel`.

    `largest_local` is what the GPU's memory holds, and may differ by configuration; `largest` bounds the batch of all
    GPUs together. With `accumulates`, a larger batch than fits is made of several passes.
    """

    smallest_local: Numbers
    largest_local: Numbers
    largest: Numbers
    accumulates: bool | NDArray[np.bool_] = True


@dataclass(frozen=True, slots=True)
class BestBatch:
    """The best batch in each configuration; all of one shape. Where no batch is possible, goodput and batch are 0."""

    goodput: Floats
    local_batch: NDArray[np.int64]
    accumulated: NDArray[np.int64]


def goodput(
    speed: SpeedModel,
    worth: StatisticalEfficiency,
    nodes: Numbers,
    gpus: Numbers,
    local_batch: Numbers,
    accumulated: Numbers = 0,
) -> Floats:
    """Examples of the base batch's worth a second."""
    batch = np.multiply(gpus, local_batch) * np.add(accumulated, 1)
    return speed.throughput(nodes, gpus, local_batch, accumulated) * worth.efficiency(batch)


def best_batch(
    speed: SpeedModel, worth: StatisticalEfficiency, limits: BatchLimits, nodes: Numbers, gpus: Numbers
) -> BestBatch:
    """The batch of the highest goodput in each configuration, among 50 sizes in geometric steps from the base batch up.

    With fields of shape (n_jobs, 1) and configurations of (n_configs,), the answer has (n_jobs, n_configs). A local
    batch is rounded up, so that all GPUs together may take a few examples more than `largest`. One GPU with a batch
    above the base makes at least two passes, as the noise scale cannot be measured from one. Among equals, the smallest
    batch.
    """
    speed, worth, limits = _beside_candidates(speed), _beside_candidates(worth), _beside_candidates(limits)
    nodes, gpus = np.asarray(nodes)[..., None], np.asarray(gpus)[..., None]
    smallest = np.maximum(worth.base_batch, np.multiply(limits.smallest_local, gpus)).astype(float)
    largest = np.asarray(limits.largest, float)
    batch = smallest * (np.maximum(largest, smallest) / smallest) ** np.linspace(0.0, 1.0, CANDIDATES)
    local_batch, accumulated = _split(batch / gpus, worth.base_batch, limits, gpus)
    possible = (limits.smallest_local <= local_batch) & (local_batch <= limits.largest_local) & (smallest <= largest)
    value = np.where(possible, goodput(speed, worth, nodes, gpus, local_batch, accumulated), 0.0)
    best = value.argmax(axis=-1)[..., None]

    def at_best(part: NDArray[np.int64]) -> NDArray[np.int64]:
        part = np.where(possible, part, 0)
        return np.take_along_axis(np.broadcast_to(part, value.shape), best, axis=-1)[..., 0]

    return BestBatch(value.max(axis=-1), at_best(local_batch), at_best(accumulated))


def _beside_candidates(part: Part) -> Part:
    """The same values with a last axis of length 1, for the candidates."""
    return type(part)(*(np.asarray(getattr(part, field.name))[..., None] for field in fields(part)))


def _split(
    each: Floats, base_batch: Numbers, limits: BatchLimits, gpus: NDArray[np.int64] | Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Passes of the fewest examples that make up `each` GPU's part of a batch."""
    passes = np.ceil(each / limits.largest_local - ROUNDING)
    passes = np.where((gpus == 1) & (each > np.asarray(base_batch) + ROUNDING), np.maximum(passes, 2), passes)
    # Without accumulation one GPU keeps to the base batch, for the same want of a noise scale.
    passes = np.where(limits.accumulates, np.maximum(passes, 1), 1)
    each = np.where((gpus == 1) & np.logical_not(limits.accumulates), base_batch, each)
    return np.ceil(each / passes - ROUNDING).astype(np.int64), (passes - 1).astype(np.int64)
