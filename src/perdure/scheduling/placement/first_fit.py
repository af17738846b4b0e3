"""First fit: the first free GPUs, wherever they are."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.placement.nodes import Ask, Nodes, gather
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The first node that holds the gang; if none does, the first free GPUs in the order of the nodes.

    Never refuses a gang for which enough GPUs are free.
    """

    name: str = "first-fit"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        for node, free in enumerate(nodes.free):
            if free >= ask.gpus:
                return ((node, ask.gpus),)
        return gather(nodes.free, ask.gpus, range(len(nodes.free)))
