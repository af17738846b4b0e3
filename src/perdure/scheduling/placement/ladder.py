"""Philly's ladder: strict locality first, relaxed rung by rung while a gang waits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from perdure.scheduling.placement.nodes import Ask, Nodes, emptiest_first, gather
from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class Ladder:
    """As few nodes as any rack would need, in one rack; then any nodes of one rack; then anywhere.

    Racks are tried by occupancy, the fullest that can hold the gang first; so are the nodes in a rack for a gang
    that fits on one node. With `spreads` both are tried the emptiest first instead, racks by their share of free
    GPUs: so each gang finds the best locality there is, and whole nodes are soon rare. A gang that is refused although
    enough GPUs are free tries one rung looser after `relax_s`, some three tries of two to three minutes.

    Source: M. Jeon et al., "Analysis of large-scale multi-tenant GPU clusters for DNN training workloads", USENIX
    ATC 2019, which ranks racks and nodes by occupancy.
    """

    relax_s: float = 450.0
    spreads: bool = False
    rungs: int = 3

    @property
    def name(self) -> str:
        return "spread-ladder" if self.spreads else "ladder"

    def choose(self, nodes: Nodes, ask: Ask) -> Shares | None:
        racks = self._by_occupancy(nodes, ask.gpus)
        for rack in racks:
            shares = self._fewest_nodes(nodes, rack, ask.gpus)
            if shares:
                return shares
        if ask.rung >= 1 and racks:
            return gather(nodes.free, ask.gpus, emptiest_first(nodes.free, _members(tuple(nodes.rack))[racks[0]]))
        if ask.rung >= 2:
            return gather(nodes.free, ask.gpus, emptiest_first(nodes.free, range(len(nodes.free))))
        return None

    def _by_occupancy(self, nodes: Nodes, gpus: int) -> list[int]:
        """Racks with at least `gpus` free, in the order in which they are tried."""
        members = _members(tuple(nodes.rack)).items()
        free = {rack: sum([nodes.free[node] for node in of]) for rack, of in members}
        size = {rack: sum([nodes.size[node] for node in of]) for rack, of in members} if self.spreads else free
        hold = [rack for rack in free if free[rack] >= gpus]
        return sorted(hold, key=lambda rack: (-free[rack] / size[rack] if self.spreads else free[rack], rack))

    def _fewest_nodes(self, nodes: Nodes, rack: int, gpus: int) -> Shares | None:
        """As many nodes of the rack as the gang would need in an empty one; None where smaller nodes make it more."""
        members = _members(tuple(nodes.rack))[rack]
        largest = max(nodes.size[node] for node in members)
        if gpus > largest and largest < nodes.largest:
            return None
        whole, rest = divmod(gpus, largest)
        full = [node for node in members if nodes.free[node] == largest][:whole]
        if len(full) < whole:
            return None
        shares = tuple((node, largest) for node in full)
        if not rest:
            return shares
        holds = [node for node in members if node not in full and nodes.free[node] >= rest]
        if not holds:
            return None
        sign = -1 if self.spreads else 1
        return (*shares, (min(holds, key=lambda node: (sign * nodes.free[node], node)), rest))


@lru_cache(maxsize=8)
def _members(racks: tuple[int, ...]) -> dict[int, list[int]]:
    """The nodes of each rack, given the rack of each node."""
    members: dict[int, list[int]] = {}
    for node, rack in enumerate(racks):
        members.setdefault(rack, []).append(node)
    return members
