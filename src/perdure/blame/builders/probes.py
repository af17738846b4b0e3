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
    """Probes sent along one path, and how many were lost. The path must be known: source routing, or IP-in-IP."""

    devices: tuple[str, ...]  # in the order in which they are passed
    sent: int
    lost: int


def probe_window(rows: Iterable[ProbeRow]) -> Named:
    """The window of probes; rows of one path are added up. A link is one component, whichever way it is passed.

    Raises `InputError` where there are no rows, or more are lost than sent.

    >>> sorted(probe_window([ProbeRow(("leaf1", "core", "leaf2"), 100, 3)]).components)[3:]
    [('link', 'core--leaf1'), ('link', 'core--leaf2')]
    """
    return named(together((_crossed(row.devices), row.sent, row.lost) for row in rows), "<probes>")


def _crossed(devices: tuple[str, ...]) -> Path:
    """The devices of a path and the links between neighbours."""
    links = (("link", "--".join(sorted(ends))) for ends in pairwise(devices))
    return frozenset((*(("device", device) for device in devices), *links))
