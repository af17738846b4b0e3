"""Nodes with GPUs, some of them free; and the ways of choosing among them that placements share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from perdure.scheduling.placement.room import Shares


@dataclass(slots=True)
class Nodes:
    """Nodes as columns, shape (n_nodes,): GPUs, those of them that are free, and the rack. ``0 <= free <= size``."""

    size: list[int]
    free: list[int]
    rack: list[int]

    @property
    def largest(self) -> int:
        """GPUs of the largest node, free or not."""
        return max(self.size)

    def without(self, barred: Iterable[int]) -> Nodes:
        """The same nodes, nothing being free on the barred ones."""
        free = self.free.copy()
        for node in barred:
            free[node] = 0
        return Nodes(self.size, free, self.rack)


@dataclass(frozen=True, slots=True)
class Ask:
    """A gang that needs a place. `rung` counts how often locality was relaxed for it; `launch` its earlier starts.

    `row` and `launch` are there for placements that draw: the same start draws the same place.
    """

    row: int
    gpus: int
    rung: int
    launch: int


class Placement(Protocol):
    """Chooses nodes for a gang, or refuses; changes nothing. A frozen value, a pure function of its arguments.

    A new placement is one file and a line in `registry.PLACEMENTS`.
    """

    @property
    def name(self) -> str: ...

    @property
    def relax_s(self) -> float:
        """Seconds after which a refused gang may try one rung looser; 0 where there are no rungs."""

    @property
    def rungs(self) -> int:
        """How many degrees of locality there are, from 0, the strictest, on; 1 for a placement that never relaxes."""

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        """Shares of distinct nodes that make up the gang, at most what is free on each; None to refuse.

        Called only where enough GPUs are free in all. The order is kept: the log of attempts names
        the first node. Of equal nodes choose the lowest, so that replays agree.
        """


def relax_ticks(placement: Placement, ticks_per_s: int) -> int:
    """Whole ticks after which a refused gang may try one rung looser, at least one; 0 where there are no rungs."""
    return max(1, round(placement.relax_s * ticks_per_s)) if placement.rungs > 1 else 0


def has_place(placement: Placement, empty: Nodes, ask: Ask, barred: Iterable[int] = ()) -> bool:
    """Whether a gang finds a place off the barred nodes in an empty cluster, if only on the placement's last rung.

    What has no place in an empty cluster never starts: a replay would not end.
    """
    last = replace(ask, rung=placement.rungs - 1)
    left = empty.without(barred)
    return sum(left.free) >= ask.gpus and placement.choose(left, last) is not None


def tightest(free: list[int], gpus: int) -> int | None:
    """The node that holds all of `gpus` and has the fewest free; of equals the lowest. None if none does.

    Mostly one has exactly as many; else they have few different numbers, and the best of these is found first.

    >>> tightest([8, 3, 4, 3], 3)
    1
    """
    if gpus in free:
        return free.index(gpus)
    enough = [some for some in set(free) if some >= gpus]
    return free.index(min(enough)) if enough else None


def gather(free: list[int], gpus: int, among: Iterable[int]) -> Shares | None:
    """All that is free on one node after the other until `gpus` are together; None where they do not suffice.

    >>> gather([0, 2, 8, 8], 5, among=range(4))
    ((1, 2), (2, 3))
    """
    shares = []
    for node in among:
        take = min(gpus, free[node])
        if take:
            shares.append((node, take))
            gpus -= take
        if not gpus:
            return tuple(shares)
    return None


def emptiest_first(free: list[int], among: Iterable[int]) -> list[int]:
    """Nodes, given from the lowest on, by free GPUs, the most first; of equals the lowest first."""
    return sorted(among, key=free.__getitem__, reverse=True)
