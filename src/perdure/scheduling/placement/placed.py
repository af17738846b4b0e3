"""Room on nodes, filled as a placement says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from perdure.errors import PerdureError
from perdure.model.cluster import Cluster
from perdure.scheduling.placement.nodes import Ask, Nodes, Placement, has_place, relax_ticks
from perdure.scheduling.placement.resources import Stock
from perdure.scheduling.placement.room import Shares


class PlacementError(PerdureError):
    """A placement chose GPUs that are not free, or not as many as were asked for: a fault of the placement."""


@dataclass(slots=True)
class Placed:
    """The GPUs of a cluster's nodes. A gang that is refused although enough are free climbs the placement's rungs.

    Invariants: `free_gpus` is the sum of ``nodes.free``; a node's free GPUs and the shares in `held` make up its size.

    The clock of a gang's rungs begins when enough GPUs are free and yet no place is, and ends when it starts. Each
    refusal sets a timer for every rung; a timer whose gang has started since is dropped when it comes up
    (`next_change`), which is cheaper than searching the heap.
    """

    nodes: Nodes
    placement: Placement
    relax: int  # ticks a rung
    free_gpus: int
    held: dict[int, Shares] = field(default_factory=dict)
    avoided: dict[int, frozenset[int]] = field(default_factory=dict)
    launches: dict[int, int] = field(default_factory=dict)
    refused: dict[int, int] = field(default_factory=dict)  # row -> tick of the first refusal, as there was no place
    timers: list[tuple[int, int, int]] = field(default_factory=list)  # tick of a rung, row, first refusal
    stock: Stock | None = None

    @classmethod
    def on(cls, cluster: Cluster, placement: Placement, ticks_per_s: int) -> Placed:
        """An empty cluster."""
        size = cluster.gpus.tolist()
        nodes = Nodes(size, size.copy(), cluster.rack.tolist())
        return cls(nodes, placement, relax_ticks(placement, ticks_per_s), sum(size))

    @property
    def n_nodes(self) -> int:
        return len(self.nodes.size)

    def take(self, row: int, gpus: int, now: int) -> bool:
        """As `Room.take`. Raises `PlacementError`.

        A gang sees nothing free on nodes that it avoids, and no GPUs for which the CPUs or the memory that it asks for
        beside them are taken.
        """
        nodes, free_gpus = self.nodes, self.free_gpus
        if row in self.avoided or self.stock is not None:
            nodes = nodes.without(self.avoided.get(row, ()))
            if self.stock is not None:
                nodes.free = self.stock.usable(row, gpus, nodes.free)
            free_gpus = sum(nodes.free)
        if gpus > free_gpus:
            return False
        ask = Ask(row, gpus, self._rung(row, now), self.launches.get(row, 0))
        shares = self.placement.choose(nodes, ask)
        if shares is None:
            self._refuse(row, now)
            return False
        self._check(nodes, ask, shares)
        self.refused.pop(row, None)
        self.launches[row] = ask.launch + 1
        self._hold(row, shares)
        return True

    def avoid(self, row: int, gpus: int, nodes: Iterable[int]) -> None:
        """As `Room.avoid`. A later call adds nodes; none is ever taken back, for what spoke against a node is not known
        to be over.
        """
        barred = self.avoided.get(row, frozenset()).union(nodes)
        size = self.nodes.size
        usable = size if self.stock is None else self.stock.of_nodes(self.stock.resources).usable(row, gpus, size)
        empty = Nodes(size, usable, self.nodes.rack)
        if has_place(self.placement, empty, Ask(row, gpus, 0, self.launches.get(row, 0)), barred):
            self.avoided[row] = barred

    def retake(self, row: int, shares: Shares) -> bool:
        if any(gpus > self.nodes.free[node] for node, gpus in shares):
            return False
        if self.stock is not None and not self.stock.fits(row, shares):
            return False
        self._hold(row, shares)
        return True

    def give_back(self, row: int) -> Shares:
        shares = self.held.pop(row)
        for node, gpus in shares:
            self.nodes.free[node] += gpus
            self.free_gpus += gpus
        if self.stock is not None:
            self.stock.give_back(row, shares)
        return shares

    def next_change(self, now: int) -> int | None:
        """The next tick at which a gang that still waits reaches a rung. Timers that are over or outdated are dropped
        first.
        """
        while self.timers and (self.timers[0][0] <= now or self.refused.get(self.timers[0][1]) != self.timers[0][2]):
            heappop(self.timers)
        return self.timers[0][0] if self.timers else None

    def _rung(self, row: int, now: int) -> int:
        """How many times `relax` ticks have passed since its first refusal, up to the last rung."""
        if row not in self.refused:
            return 0
        return min(self.placement.rungs - 1, (now - self.refused[row]) // self.relax)

    def _refuse(self, row: int, now: int) -> None:
        """Start the clock of a gang's rungs, if it does not run yet, and set a timer for each rung."""
        if self.placement.rungs > 1 and row not in self.refused:
            self.refused[row] = now
            for rung in range(1, self.placement.rungs):
                heappush(self.timers, (now + rung * self.relax, row, now))

    def _hold(self, row: int, shares: Shares) -> None:
        """Book the shares; the only place, with `give_back`, that changes what is free."""
        self.held[row] = shares
        for node, gpus in shares:
            self.nodes.free[node] -= gpus
            self.free_gpus -= gpus
        if self.stock is not None:
            self.stock.hold(row, shares)

    def _check(self, nodes: Nodes, ask: Ask, shares: Shares) -> None:
        """Refuse what a placement of somebody's own got wrong, with the job and what was chosen."""
        whole = sum(gpus for _, gpus in shares) == ask.gpus and len({node for node, _ in shares}) == len(shares)
        if not whole or any(not 0 < gpus <= nodes.free[node] for node, gpus in shares):
            what = f"it gives the job in row {ask.row} {shares}, for {ask.gpus} GPUs"
            raise PlacementError(f"placement {self.placement.name}", what, "Choose as many free GPUs as are asked for")
