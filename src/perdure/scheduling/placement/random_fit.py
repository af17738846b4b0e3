"""Random placement: what locality is worth shows against it."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.placement.draw import uniform
from perdure.scheduling.placement.nodes import Ask, Nodes, gather
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class RandomFit:
    """Free GPUs of nodes in an order that is redrawn for each start of a job, by `seed`, row and start."""

    seed: int = 0
    name: str = "random"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        key = (ask.row << 20) + ask.launch
        order = sorted(range(len(nodes.free)), key=lambda node: uniform(self.seed, key, node))
        return gather(nodes.free, ask.gpus, order)
