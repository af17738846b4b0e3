"""As many nodes as each job asked for, in equal parts: how Slurm places a gang."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.placement.nodes import Ask, Nodes
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class AsAsked:
    """The fullest nodes that each have room for an equal part of the gang; among equals the lowest.

    `nodes` is how many each job asked for, by its row. A gang that does not come out even has the larger parts on the
    first nodes; each node must have room for a larger part.

    >>> AsAsked((1, 2)).choose(Nodes([4, 4, 4], [3, 4, 2], [0, 0, 0]), Ask(row=1, gpus=6, rung=0, launch=0))
    ((0, 3), (1, 3))
    """

    nodes: tuple[int, ...]
    name: str = "as-asked"
    relax_s: float = 0.0
    rungs: int = 1

    def nodes_for(self, row: int, gpus: int) -> int:
        """How many nodes the job of a row takes: not more than it has GPUs."""
        return max(1, min(self.nodes[row], gpus))

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        wanted = self.nodes_for(ask.row, ask.gpus)
        each, rest = divmod(ask.gpus, wanted)
        fitting = [node for node, free in enumerate(nodes.free) if free >= each + (rest > 0)]
        if len(fitting) < wanted:
            return None
        fullest = sorted(fitting, key=lambda node: nodes.free[node])[:wanted]
        return tuple((node, each + (place < rest)) for place, node in enumerate(fullest))
