"""A step of data-parallel training: gradients are sent bucket by bucket while the backward pass goes on.

Buckets fill in the order in which the backward pass makes gradients, last layer first. One stream sends one after the
other:

    ready(k) = forward + backward of the layers up to the last of bucket k
    end(k)   = max(end(k - 1), ready(k)) + c(size(k))
    step     = max(end(last), forward + backward)

Source: S. Li et al., "PyTorch Distributed", VLDB 2020, section 3.2. With priorities (Y. Peng et al., "ByteScheduler",
SOSP 2019) the next forward pass begins while the buckets of later layers are on their way, so that a tail that is no
longer than that pass is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perdure.throughput.compute import BYTES_OF_NUMBER, PassTimes
from perdure.throughput.layers import Layers
from perdure.throughput.speed import Floats

BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 << 20, 1 << 20
"""As PyTorch's DistributedDataParallel fills them."""


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """Seconds of one step, and of what it consists."""

    step_s: float
    compute_s: float
    communication_s: float  # all buckets, one after the other

    @property
    def exposed_s(self) -> float:
        """How long the GPUs wait for gradients."""
        return self.step_s - self.compute_s

    @property
    def efficiency(self) -> float:
        """The share of the step in which the GPUs compute: of the throughput of as many GPUs by themselves."""
        return self.compute_s / self.step_s


def buckets_of(layers: Layers, bucket_bytes: float = BUCKET_BYTES, first: float = FIRST_BUCKET_BYTES) -> list[slice]:
    """The layers of each bucket, counted from the last one backwards: a bucket is sent once it has its size."""
    sizes, found, start, filled = layers.parameters[::-1] * BYTES_OF_NUMBER, list[slice](), 0, 0.0
    for index, size in enumerate(sizes, 1):
        filled += size
        if filled >= (bucket_bytes if found else first) or index == len(sizes):
            found.append(slice(start, index))
            start, filled = index, 0.0
    return found


def step_of(
    layers: Layers,
    passes: PassTimes,
    send_s: Callable[[Floats], Floats],
    bucket_bytes: float = BUCKET_BYTES,
    priorities: bool = False,
) -> TrainingStep:
    """How long a step takes; `send_s` gives the seconds of an all-reduce of so many bytes, for many sizes at once."""
    forward, compute = float(passes.forward.sum()), passes.total_s
    done = np.cumsum(passes.backward[::-1]) + forward
    parts = buckets_of(layers, bucket_bytes)
    sizes = np.array([layers.parameters[::-1][part].sum() * BYTES_OF_NUMBER for part in parts])
    taken, end = send_s(sizes), 0.0
    for part, seconds in zip(parts, taken, strict=True):
        end = max(end, float(done[part.stop - 1])) + float(seconds)
    tail = max(0.0, end - compute)
    if priorities:
        tail = max(0.0, tail - forward)
    return TrainingStep(compute + tail, compute, float(taken.sum()))
