"""Philly's ladder: strict locality first, relaxed rung by rung while a gang waits."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.scheduling.placement.nodes import Ask, Nodes, emptiest_first, gather
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class Ladder:
    """Fewest nodes in one rack, then any nodes of one rack, then anywhere.

    Racks are tried by occupancy, the fullest that can hold the gang first; so are the nodes in a rack for a gang
    that fits on one node. A gang that is refused although enough GPUs are free tries one rung looser after
    `relax_s`, some three tries of two to three minutes.

    Source: M. Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads", USENIX
    ATC 2019.
    """

    relax_s: float = 450.0
    name: str = "ladder"
    rungs: int = 3

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        racks = _by_occupancy(nodes, ask.gpus)
        for members in racks:
            shares = _fewest_nodes(nodes, members, ask.gpus)
            if shares:
                return shares
        if ask.rung >= 1 and racks:
            return gather(nodes.free, ask.gpus, emptiest_first(nodes.free, racks[0]))
        if ask.rung >= 2:
            return gather(nodes.free, ask.gpus, emptiest_first(nodes.free, range(len(nodes.free))))
        return None


def _by_occupancy(nodes: Nodes, gpus: int) -> list[list[int]]:
    """Racks with at least `gpus` free, the fewest free first, each as its nodes."""
    members: dict[int, list[int]] = {}
    for node, rack in enumerate(nodes.rack):
        members.setdefault(rack, []).append(node)
    free = {rack: sum(nodes.free[node] for node in them) for rack, them in members.items()}
    return [members[rack] for rack in sorted(members, key=lambda rack: (free[rack], rack)) if free[rack] >= gpus]


def _fewest_nodes(nodes: Nodes, members: list[int], gpus: int) -> Shares | None:
    """As many nodes of the rack as the gang would need in an empty one, the last of them the tightest."""
    largest = max(nodes.size[node] for node in members)
    whole, rest = divmod(gpus, largest)
    full = [node for node in members if nodes.free[node] == largest][:whole]
    if len(full) < whole:
        return None
    shares = tuple((node, largest) for node in full)
    if not rest:
        return shares
    taken = set(full)
    holds = [node for node in members if node not in taken and nodes.free[node] >= rest]
    if not holds:
        return None
    return (*shares, (min(holds, key=lambda node: (nodes.free[node], node)), rest))
