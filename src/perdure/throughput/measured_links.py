"""Links within a node as NCCL's all-reduces over them were measured.

Fitted by `python -m benchmarks.training_collectives --links` to the tables of Vidur (A. Agrawal et al., MLSys 2024;
microsoft/vidur 7d47513, MIT). `pcie` is four GPUs in two pairs, whose ring crosses PCIe 4 or 5; `nvlink` one pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perdure.throughput.size_ranges import RangedLink, SizeRange

_Range = tuple[float, float, float]  # microseconds to start, microseconds a hop, GB/s
_FITTED: tuple[tuple[str, str, tuple[float, float], tuple[_Range, _Range, _Range]], ...] = (
    ("nvswitch", "a100", (65536, 8388608), ((7.62, 1.07, 7.082), (32.01, 0.15, 122.6), (46.48, 2.84, 184.6))),
    ("nvswitch", "h100", (32768, 4194304), ((2.39, 2.30, 236.3), (27.33, 0.05, 338.3), (22.15, 0.66, 348.3))),
    ("nvlink", "a100", (370728, 5931642), ((0.00, 3.37, 7.226), (0.00, 29.74, 1012), (0.00, 15.78, 191.7))),
    ("nvlink", "h100", (524288, 16777216), ((0.00, 3.31, 85.09), (0.00, 8.69, 205.3), (0.00, 9.49, 198.7))),
    ("pcie", "a100", (1048576, 16777216), ((0.00, 9.48, 23.06), (0.00, 11.66, 24.4), (0.00, 18.11, 23.78))),
    ("pcie", "h100", (370728, 741455), ((0.00, 4.53, 176.1), (0.00, 0.32, 19.14), (0.00, 8.32, 49.67))),
)


def _range(start_us: float, hop_us: float, gb_per_s: float) -> SizeRange:
    return SizeRange(start_us / 1e6, hop_us / 1e6, gb_per_s * 1e9)


MEASURED_LINKS: Mapping[tuple[str, str], RangedLink] = MappingProxyType(
    {
        (name, gpu): RangedLink(bounds, (_range(*ranges[0]), _range(*ranges[1]), _range(*ranges[2])))
        for name, gpu, bounds, ranges in _FITTED
    }
)
"""By what connects the GPUs, as in `collectives.INSIDE`, and the GPU's name."""
