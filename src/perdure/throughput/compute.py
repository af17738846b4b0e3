"""How long the passes of a model take on one GPU, where nobody has measured them.

Each layer takes the longer of its arithmetic and of its memory traffic, after a fixed time to start its kernels (the
roofline of S. Williams et al., CACM 2009):

    t(layer) = launch + max(flops * batch / (peak * arithmetic), 4 * (words moved) / (bandwidth * memory))

The constants of `Efficiency` are fitted; `benchmarks/training_speed.md` says to what, and how far off the estimate is
on models and GPUs that it was not fitted to. A measurement of one's own is always better: see `PassTimes.calibrated`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from perdure.throughput.layers import Layers
from perdure.throughput.speed import Floats

BYTES_OF_NUMBER = 4  # single precision, in which gradients are sent too


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a data sheet says of a GPU: arithmetic a second in single precision, and bytes a second of its memory."""

    name: str
    flops: float
    bandwidth: float
    tensor_flops: float = 0.0  # of TF32, which frameworks use for convolutions where it is there
    pace: float = 1.0  # seconds that were measured over those that are estimated without it; 1 where nobody measured

    @property
    def peak(self) -> float:
        return max(self.flops, self.tensor_flops)


_PACE = {"k80": 1.73, "m40": 1.07, "p100": 0.96, "v100": 0.84, "rtx6000": 0.93, "a100": 0.96, "h100": 0.73}

GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        name: Gpu(name, flops * 1e12, bandwidth * 1e9, tensor * 1e12, _PACE.get(name, 1.0))
        for name, flops, bandwidth, tensor in (
            ("k80", 4.37, 240, 0.0),
            ("m40", 6.8, 288, 0.0),
            ("p100", 9.3, 732, 0.0),
            ("t4", 8.1, 320, 0.0),
            ("v100", 14.0, 900, 0.0),
            ("rtx6000", 16.3, 672, 0.0),
            ("rtx2080ti", 13.4, 616, 0.0),
            ("a10", 31.2, 600, 62.5),
            ("a100", 19.5, 1555, 156.0),
            ("a100-80g", 19.5, 2039, 156.0),
            ("l4", 30.3, 300, 60.0),
            ("l40s", 91.6, 864, 183.0),
            ("h100", 66.9, 3350, 495.0),
            ("h200", 66.9, 4800, 495.0),
        )
    }
)
"""By the name under which a user asks for it; of a K80 one of its two. Source: NVIDIA's data sheets, dense."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Which share of its data sheet a GPU reaches, and what starting a layer takes."""

    arithmetic: float = 1.0
    tensor: float = 0.66
    memory: float = 0.34
    launch_s: float = 152e-6


_PARAMETERS_MOVED = 2.0
"""Times for each of three passes, the backward one being two: parameters are read in both, gradients written, and then
added to those that are kept (two read, one written).
"""

TRUE_TO_ESTIMATED = (0.72, 1.80)
"""Between these times the estimate lie 80 % of the true times of GPUs to which `Efficiency` was not fitted."""

TRUE_TO_PACED = (0.75, 1.26)
"""The same of GPUs whose `pace` was measured, for families of models that were not."""


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Seconds of the forward and of the backward pass, by layer; both have (n_layers,)."""

    forward: Floats
    backward: Floats

    @property
    def total_s(self) -> float:
        return float(self.forward.sum() + self.backward.sum())

    def calibrated(self, measured_s: float) -> PassTimes:
        """The same, so that both together take as long as was measured on one GPU."""
        factor = measured_s / self.total_s
        return replace(self, forward=self.forward * factor, backward=self.backward * factor)


def passes_on(layers: Layers, gpu: Gpu, batch: float, efficiency: Efficiency = Efficiency()) -> PassTimes:
    """How long both passes of `batch` examples are estimated to take."""
    reached = max(gpu.flops * efficiency.arithmetic, gpu.tensor_flops * efficiency.tensor)
    arithmetic = layers.flops * batch / reached
    moved = 2.0 * layers.activations * batch + _PARAMETERS_MOVED * layers.parameters
    memory = BYTES_OF_NUMBER * moved / (gpu.bandwidth * efficiency.memory)
    forward = gpu.pace * (efficiency.launch_s + np.maximum(arithmetic, memory))
    return PassTimes(forward, 2 * forward)  # gradients of inputs and of weights: each as much again
