"""Placements that never refuse a gang for which enough GPUs are free: first, best and random fit."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.draws import uniform
from perdure.scheduling.placement.nodes import Ask, Nodes, emptiest_first, gather, tightest
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The first node that holds the gang; if none does, the first free GPUs in the order of the nodes.

    ``O(n)`` in the nodes, with no thought for locality or for the gaps that it leaves.
    """

    name: str = "first-fit"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        for node, free in enumerate(nodes.free):
            if free >= ask.gpus:
                return ((node, ask.gpus),)
        return gather(nodes.free, ask.gpus, range(len(nodes.free)))


@dataclass(frozen=True, slots=True)
class BestFit:
    """The node with the fewest free GPUs that holds the gang; if none does, as few as possible, emptiest first.

    Small gangs fill gaps, so that whole nodes stay free for large ones; a gang that fits no node is split rather than
    refused. For gangs that must not be split use `consolidate`.
    """

    name: str = "best-fit"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        node = tightest(nodes.free, ask.gpus)
        if node is not None:
            return ((node, ask.gpus),)
        return gather(nodes.free, ask.gpus, emptiest_first(nodes.free, range(len(nodes.free))))


@dataclass(frozen=True, slots=True)
class RandomFit:
    """Free GPUs of nodes in an order that is redrawn for each start of a job, by `seed`, row and start.

    The baseline that shows what locality is worth: a gang is spread over nodes as chance has it, even where one would
    hold it.
    """

    seed: int = 0
    name: str = "random"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        key = (ask.row << 20) + ask.launch
        order = sorted(range(len(nodes.free)), key=lambda node: uniform(self.seed, key, node))
        return gather(nodes.free, ask.gpus, order)
