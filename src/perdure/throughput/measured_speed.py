"""How fast steps were measured to be on one GPU type: by rates, by layouts, or by the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from perdure.throughput.pipeline import Pipeline
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
class PipelineSpeed:
    """Steps of a pipeline's replicas; `forward` has a stage's forward pass, by layout and examples of a micro-batch."""

    pipeline: Pipeline
    stages: int  # GPUs of a replica
    forward: MeasuredSpeed

    @property
    def smallest_local(self) -> int:
        return self.pipeline.replica_batch

    @property
    def largest_local(self) -> int:
        return self.pipeline.replica_batch

    @property
    def single(self) -> float:
        """Examples a second of one replica."""
        return self.pipeline.replica_batch / self.step_s((self.stages,), self.pipeline.replica_batch)[0]

    @property
    def most_gpus(self) -> int:
        return self.forward.most_gpus // self.stages * self.stages

    def step_s(self, layout: Layout, _local_batch: int) -> tuple[float, float]:
        """As `Speed`; NaN for GPUs that are no whole replicas."""
        if sum(layout) % self.stages:
            return np.nan, np.nan
        forward_s, sync_s = self.forward.step_s(layout, self.pipeline.microbatch)
        return self.pipeline.compute_s(self.stages, forward_s) + sync_s, sync_s

    def largest_local_on(self, _layout: Layout) -> int:
        return self.pipeline.replica_batch


def turned(layout: Layout) -> Layout:
    """The layout that stands for all that differ by where one begins to count nodes.

    >>> turned((4, 1, 2))
    (1, 2, 4)
    """
    return min(layout[place:] + layout[:place] for place in range(len(layout)))
