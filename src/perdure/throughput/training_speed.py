"""How fast a model trains where: the step, what bounds it, and what a faster network or another batch would change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.throughput.collectives import (
    GpuLayout,
    GpuLink,
    GpuNetwork,
    Transport,
    between_nodes,
    link_inside,
    servers_s,
)
from perdure.throughput.compute import BYTES_OF_NUMBER, TRUE_TO_ESTIMATED, TRUE_TO_PACED, Gpu, PassTimes, passes_on
from perdure.throughput.layers import Layers
from perdure.throughput.layout_speed import Prior, SeenSteps, prior_of
from perdure.throughput.option_values import digits
from perdure.throughput.overlap import TrainingStep, step_of
from perdure.throughput.speed import Floats

if TYPE_CHECKING:
    from perdure.throughput.incast import IncastResult

WORTH = 1.10
"""RDMA is said to be worth it where it makes steps this much quicker."""

WANTED_EFFICIENCY = 0.95
LARGEST_BATCH = 4096
_RATES_GBIT = (1.0, 6400.0)  # between these a rate is looked for
_LEAST_BURST_S, _MOST_BURST_S = 1e-3, 0.2
_GRID_NODES, _GRID_GPUS = np.array([1, 2, 3, 4, 8, 16]), np.array([1, 2, 4, 8])
_TRUE_TO_MEASURED = (0.97, 1.03)  # steps of one program on one GPU differ by so much from run to run


@dataclass(frozen=True, slots=True)
class TrainingSetting:
    """What is trained on what: `batch` is that of one GPU; `rate_gbit` the network link of one node."""

    layers: Layers
    gpu: Gpu
    batch: int
    layout: GpuLayout
    rate_gbit: float
    transport: Transport
    inside: str = "pcie"  # a name of `collectives.INSIDE`
    measured_s: float | None = None  # forward and backward pass on one GPU, if somebody measured them
    measured_batch: int = 0  # the batch of that measurement; 0: `batch`
    priorities: bool = False
    servers: int = 0  # parameter servers on nodes of their own; 0: an all-reduce
    oversubscription: float = 1.0  # of racks: rates of their nodes' links over the rate of their uplinks

    def _servers_s(self, size: Floats) -> Floats:
        """With priorities gradients are partitioned."""
        return servers_s(size, self.layout.nodes, self.servers, self.to_servers, partitioned=self.priorities)

    @property
    def to_servers(self) -> GpuLink:
        """The link of a server's node; every node sends to every server."""
        return between_nodes(self.rate_gbit, self.transport, self.layout, self.oversubscription, all_to_all=True)

    def all_reduce_s(self, size: Floats) -> Floats:
        """Seconds of adding up gradients of these sizes."""
        if self.servers and self.layout.nodes > 1:
            within = link_inside(self.inside, self.gpu.name).all_reduce_s(size, self.layout.gpus_per_node)
            return np.add(within, self._servers_s(size))
        network = GpuNetwork(self.rate_gbit, self.transport, self.inside, self.gpu.name, self.oversubscription)
        return network.all_reduce_s(size, self.layout)

    @property
    def passes(self) -> PassTimes:
        """Both passes on one GPU: as measured, or else estimated; another batch than the measured one in proportion."""
        estimate = passes_on(self.layers, self.gpu, self.batch)
        if self.measured_s is None:
            return estimate
        of = passes_on(self.layers, self.gpu, self.measured_batch or self.batch)
        return estimate.calibrated(estimate.total_s * self.measured_s / of.total_s)


@dataclass(frozen=True, slots=True)
class TrainingSpeed:
    """The answer for one setting. Intervals hold 80 % of true times, where the network does what its link promises."""

    setting: TrainingSetting
    step: TrainingStep
    low_s: float
    high_s: float

    @property
    def examples_per_s(self) -> float:
        return self.setting.batch * self.setting.layout.gpus / self.step.step_s

    @property
    def bottleneck(self) -> str:
        """What bounds the step, in words."""
        layout, waits = self.setting.layout, self.step.exposed_s / self.step.step_s
        if layout.gpus == 1:
            return "computing"
        what = "the network" if layout.nodes > 1 else f"{self.setting.inside} within the node"
        if waits < 1 - WANTED_EFFICIENCY:
            return f"computing: {what} keeps up"
        sent = self.setting.layers.total_parameters * BYTES_OF_NUMBER / 1e6
        return f"{what}: GPUs wait {waits:.0%} of the time for {digits(sent)} MB of gradients"


def speed_of(setting: TrainingSetting) -> TrainingSpeed:
    """How fast `setting` trains."""
    estimated = TRUE_TO_ESTIMATED if setting.gpu.pace == 1.0 else TRUE_TO_PACED
    low, high = estimated if setting.measured_s is None else _TRUE_TO_MEASURED
    return TrainingSpeed(setting, step_with(setting), step_with(setting, low).step_s, step_with(setting, high).step_s)


def step_with(setting: TrainingSetting, factor: float = 1.0) -> TrainingStep:
    """The step where computing takes `factor` times as long as is thought."""
    passes = setting.passes
    if factor != 1.0:
        passes = passes.calibrated(passes.total_s * factor)
    return step_of(setting.layers, passes, setting.all_reduce_s, priorities=setting.priorities)


def incast_of(setting: TrainingSetting) -> IncastResult | None:
    """What becomes of the burst that a parameter server gets in each step; None without servers, and of TCP.

    All nodes send it a share of the gradients at once, under DCQCN.
    """
    from perdure.throughput.incast import incast  # numba

    if not setting.servers or setting.layout.nodes == 1 or setting.transport is Transport.TCP:
        return None
    link = setting.to_servers
    sent = setting.layers.total_parameters * BYTES_OF_NUMBER * max(1.0, setting.layout.nodes / setting.servers)
    duration_s = min(max(sent / link.bytes_per_s, _LEAST_BURST_S), _MOST_BURST_S)
    return incast(setting.layout.nodes, link.bytes_per_s, duration_s=duration_s)


def gain_of_rdma(setting: TrainingSetting) -> float:
    """How many times as quick a step is with RDMA as with TCP."""
    tcp, rdma = (step_with(replace(setting, transport=each)).step_s for each in (Transport.TCP, Transport.RDMA))
    return tcp / rdma


def batch_without_gain(setting: TrainingSetting, largest: int = LARGEST_BATCH) -> int | None:
    """The smallest batch of a GPU from which on RDMA is not worth it; None where it is at `largest` too."""
    return _smallest(range(1, largest + 1), lambda batch: gain_of_rdma(replace(setting, batch=batch)) <= WORTH)


def rate_wanted(setting: TrainingSetting, efficiency: float = WANTED_EFFICIENCY) -> float | None:
    """Gbit/s of the link with which GPUs compute so much of the time; None where none is fast enough."""

    def reached(rate: float) -> bool:
        return step_with(replace(setting, rate_gbit=rate)).efficiency >= efficiency

    low, high = _RATES_GBIT
    if not reached(high):
        return None
    if reached(low):
        return low
    while high / low > 1.01:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def prior_from(setting: TrainingSetting) -> Prior:
    """What layers and links say of how a step changes with its layout, for a fit to a few measured steps."""
    from perdure.throughput.layout_fit import fit_layouts  # scipy

    nodes, each = (column.ravel() for column in np.meshgrid(_GRID_NODES, _GRID_GPUS))
    step = [step_with(replace(setting, layout=GpuLayout(n, g))).step_s for n, g in zip(nodes, each, strict=True)]
    seen = SeenSteps(nodes, nodes * each, np.full(len(nodes), float(setting.batch)), np.array(step))
    model = fit_layouts(seen).model
    return replace(prior_of([model]), inside_s=float(np.exp(model.theta[2])))


def _smallest(values: Sequence[int], holds: Callable[[int], bool]) -> int | None:
    """The first value from which on it holds; it holds for all that are larger than one for which it does."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(values[middle]) else (middle + 1, high)
    return values[low] if low < len(values) else None
