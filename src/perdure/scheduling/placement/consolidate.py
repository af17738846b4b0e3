"""Consolidation: a gang takes as few nodes as it can, or waits."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.placement.nodes import Ask, Nodes, emptiest_first, tightest
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class Consolidate:
    """One node for a gang that fits on one: the tightest. A larger gang takes whole free nodes, and what remains
    of it the next emptiest node. Among equals the lowest. With nodes of several sizes whole nodes are the largest.

    Keeps every gang on the least nodes that it can have, and pays with waiting: a gang of 16 waits for two empty nodes
    though 16 GPUs are free. Use `ladder` to give that up after a while. ``O(n log n)`` in the nodes.

    Source: Q. Hu et al., "Characterization and prediction of deep learning workloads in large-scale GPU
    datacenters", SC 2021 (Helios), whose simulator places like this.

    >>> Consolidate().choose(Nodes([8, 8, 8], [3, 8, 5], [0, 0, 0]), Ask(row=0, gpus=4, rung=0, launch=0))
    ((2, 4),)
    >>> Consolidate().choose(Nodes([8, 8, 8], [3, 8, 5], [0, 0, 0]), Ask(row=0, gpus=13, rung=0, launch=0))
    ((1, 8), (2, 5))
    """

    name: str = "consolidate"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        largest = nodes.largest
        if ask.gpus <= largest:
            node = tightest(nodes.free, ask.gpus)
            return None if node is None else ((node, ask.gpus),)
        whole, rest = divmod(ask.gpus, largest)
        picked = emptiest_first(nodes.free, range(len(nodes.free)))[: whole + (rest > 0)]
        shares = tuple((node, largest if i < whole else rest) for i, node in enumerate(picked))
        fits = len(picked) == whole + (rest > 0) and all(nodes.free[node] >= gpus for node, gpus in shares)
        return shares if fits else None
