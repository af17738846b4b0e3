"""Best fit: the gap that is filled best."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.placement.nodes import Ask, Nodes, emptiest_first, gather, tightest
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class BestFit:
    """The node with the fewest free GPUs that holds the gang; if none does, as few nodes as possible, emptiest first.

    Never refuses a gang for which enough GPUs are free.
    """

    name: str = "best-fit"
    relax_s: float = 0.0
    rungs: int = 1

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        every = range(len(nodes.free))
        node = tightest(nodes.free, ask.gpus, every)
        if node is not None:
            return ((node, ask.gpus),)
        return gather(nodes.free, ask.gpus, emptiest_first(nodes.free, every))
