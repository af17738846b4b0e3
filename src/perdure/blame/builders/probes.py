"""Probes along known network paths: the devices on the way and the links between them.

Source: as in C. Guo et al., "Pingmesh", SIGCOMM 2015, and C. Tan et al., "NetBouncer", NSDI 2019.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from perdure.blame.builders.named import Named, Path, named, together


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """Probes sent along one path, and how many were lost."""

    devices: tuple[str, ...]  # in the order in which they are passed
    sent: int
    lost: int


def probe_window(rows: Iterable[ProbeRow]) -> Named:
    """The window of probes. A link is one component, whichever way it is passed."""
    return named(together((_crossed(row.devices), row.sent, row.lost) for row in rows), "<probes>")


def _crossed(devices: tuple[str, ...]) -> Path:
    links = (("link", "--".join(sorted(ends))) for ends in pairwise(devices))
    return frozenset((*(("device", device) for device in devices), *links))
