"""Measured collectives in three ranges of sizes: each range has its own latency and rate, as libraries change protocol.

NCCL sends small messages with a flag beside each word (LL), middle ones with a flag beside each 120 bytes (LL128), and
large ones at the full rate of the link. In each range an all-reduce of s bytes by N members takes

    start + 2 (N - 1) hop + 2 (N - 1) / N  s / B

Source: Z. Hu et al., "Demystifying NCCL", Hot Interconnects 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure.throughput.speed import Floats, Numbers


@dataclass(frozen=True, slots=True)
class SizeRange:
    """What an all-reduce takes: `start_s` once, `hop_s` for each hop, and its bytes at `bytes_per_s`."""

    start_s: float
    hop_s: float
    bytes_per_s: float

    def all_reduce_s(self, size: Numbers, members: Numbers) -> Floats:
        """Seconds for `size` bytes among two or more members."""
        members = np.asarray(members, float)
        sent = np.multiply(size, 2 * (members - 1) / members)
        return np.asarray(self.start_s + 2 * (members - 1) * self.hop_s + sent / self.bytes_per_s, float)


@dataclass(frozen=True, slots=True)
class RangedLink:
    """A link as collectives over it were measured: messages below `bounds[0]` bytes, below `bounds[1]`, and others."""

    bounds: tuple[float, float]
    ranges: tuple[SizeRange, SizeRange, SizeRange]

    def all_reduce_s(self, size: Numbers, members: Numbers) -> Floats:
        """Seconds of an all-reduce of `size` bytes; one member by itself has nothing to send."""
        size, members = np.broadcast_arrays(np.asarray(size, float), np.asarray(members, float))
        which = np.digitize(size, self.bounds)
        found = np.choose(which, [each.all_reduce_s(size, members) for each in self.ranges])
        return np.where(members > 1, found, 0.0)
