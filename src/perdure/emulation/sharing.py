"""Who goes next on a GPU that several programs share, one piece of work at a time.

Orders: `fifo` as they came; `salus` who has had least of it (the fair policy of P. Yu and M. Chowdhury, "Salus", MLSys
2020, which switches after each iteration); `muri` whose work off the GPU is longest, so that it goes on while others
compute (after Y. Zhao et al., "Muri", SIGCOMM 2022, which interleaves stages that use different resources; the rule for
one device is ours). What programs hold between steps stays; only one has more at a time, as in Salus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(slots=True)
class SharingProgram:
    """A program on a shared GPU: what it holds, what it has had, and what it waits for."""

    name: str
    persistent_mib: float = 0.0
    peak_mib: float = 0.0
    served_s: float = 0.0
    off_gpu_s: float = 0.0  # the last time between the end of its work and its next request
    asked_at: float = 0.0
    wanted_s: float | None = None  # None: it waits for nothing


Order = Callable[[Sequence[SharingProgram]], SharingProgram]

ORDERS: Mapping[str, Order] = MappingProxyType(
    {
        "fifo": lambda waiting: min(waiting, key=lambda each: each.asked_at),
        "salus": lambda waiting: min(waiting, key=lambda each: (each.served_s, each.asked_at)),
        "muri": lambda waiting: min(waiting, key=lambda each: (-each.off_gpu_s, each.asked_at)),
    }
)
"""Each takes those that wait, at least one, and names the next."""


def fits_beside(programs: Sequence[SharingProgram], capacity_mib: float) -> bool:
    """Whether all fit together: what each holds between steps, and what any one needs beyond that."""
    held = sum(each.persistent_mib for each in programs)
    return held + max((each.peak_mib - each.persistent_mib for each in programs), default=0.0) <= capacity_mib
