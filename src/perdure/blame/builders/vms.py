"""VM and VHD failures: the Clos network between compute and storage, folded to a tree.

Source: Q. Zhang et al., "Deepview", NSDI 2018: devices of one tier that ECMP makes indistinguishable count as one, so
that each pair of compute and storage has exactly one path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from perdure.blame.builders.named import Component, Counted, Named, named, together
from perdure.errors import InputError

MOST_TIERS = 8

View = Literal["tor", "cluster"]
Uplinks = Mapping[str, Iterable[str]]
"""The devices right above each: above a ToR, a storage cluster's switch, an aggregation switch."""


@dataclass(frozen=True, slots=True)
class VmRow:
    """VMs under one ToR with their disks in one storage cluster: how many there are, and how many of them failed."""

    cluster: str  # of compute
    tor: str
    storage: str
    units: int
    failures: int


def vm_window(rows: Iterable[VmRow], uplinks: Uplinks, view: View = "tor") -> Named:
    """The window of VM rows; rows of one path are added up. In the cluster view a compute cluster stands for its ToRs.

    Use the ``tor`` view to find a switch of a rack, the ``cluster`` view where units are so few that no ToR has enough.

    Raises `InputError` where compute and storage do not meet above, and where there are no rows.
    """
    return named(together(_paths(rows, uplinks, view)), "<VMs>")


def _paths(rows: Iterable[VmRow], uplinks: Uplinks, view: View) -> Iterator[Counted]:
    """One counted path a row; the network between a ToR and a storage cluster is folded once for each pair."""
    known: dict[tuple[str, str], tuple[Component, ...]] = {}
    for row in rows:
        pair = row.tor, row.storage
        if pair not in known:
            known[pair] = folded(*pair, uplinks)
        compute = ("tor", row.tor) if view == "tor" else ("compute", row.cluster)
        yield frozenset({compute, *known[pair], ("storage", row.storage)}), row.units, row.failures


def folded(one: str, other: str, uplinks: Uplinks) -> tuple[Component, ...]:
    """The groups of devices between two ends, each a component: up to the first tier that both reach, and down.

    ECMP spreads the flows of a pair over all shortest ways, so no observation of the pair tells the devices of one
    group apart: a group is the most that can be blamed, and its name lists all of them.

    >>> up = {"t1": ["a1", "a2"], "s1": ["b1"], "a1": ["c1"], "a2": ["c1", "c2"], "b1": ["c1", "c2"]}
    >>> folded("t1", "s1", up)
    (('tier 1', 'a1+a2'), ('tier 1', 'b1'), ('tier 2', 'c1+c2'))
    """
    left, right = frozenset({one}), frozenset({other})
    found: set[Component] = set()
    for tier in range(1, MOST_TIERS + 1):
        left, right = _above(left, uplinks), _above(right, uplinks)
        if left & right:
            return (*sorted(found), _group(tier, left & right))
        found |= {_group(tier, side) for side in (left, right) if side}
    raise InputError(f"{one} and {other}", "no device is above both", "Add the uplinks of all switches between them")


def _above(devices: frozenset[str], uplinks: Uplinks) -> frozenset[str]:
    return frozenset(upper for device in devices for upper in uplinks.get(device, ()))


def _group(tier: int, devices: frozenset[str]) -> Component:
    """A group of devices as one component: its tier counted from the ends, its name the sorted names."""
    return f"tier {tier}", "+".join(sorted(devices))
