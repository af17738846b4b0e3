"""Turns: the owner that holds the smallest share of its due goes next, with its oldest job.

Progressive filling: repeated turns raise the smallest share first, so the shares that result are max-min fair as far as
whole gangs allow. `capacity` (owners are virtual clusters) and `drf` (users) differ by owner and due alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from perdure.scheduling.placement.resources import NodeResource
from perdure.scheduling.protocol import Ranking
from perdure.scheduling.shares import used
from perdure.scheduling.view import View


@dataclass(slots=True)
class Turns(Ranking):
    """One queue an owner. An owner whose oldest job does not fit has no further turn in this pass.

    So a wide job holds up later jobs of its own owner, never those of others. GPUs are not kept free for it: it starts
    once enough are free at its turn. A pass costs the waiting jobs once, then ``log(owners)`` a turn; of equal shares
    the owner with the lower number goes first.
    """

    view: View
    owner: Sequence[int]  # of each job
    due: Sequence[float]  # GPUs, or weight, of each owner; more than 0 for one that has jobs
    limit: Sequence[float] = ()  # GPUs that each owner may hold; none: as many as there are
    resources: Sequence[NodeResource] = ()  # that count besides GPUs: then the largest share of all decides

    def order(self) -> Iterator[int]:
        held = used(self.view, self.owner, len(self.due))
        others = [(each, used(self.view, self.owner, len(self.due), each.asked)) for each in self.resources]
        queues: dict[int, list[int]] = {}
        for row in reversed(self.view.waiting):
            queues.setdefault(self.owner[row], []).append(row)
        turns = [(self._share(owner, held, others), owner) for owner in queues]
        heapify(turns)
        while turns:
            _, owner = heappop(turns)
            row = queues[owner].pop()
            if self.limit and held[owner] + self.view.gpus[row] > self.limit[owner]:
                continue
            yield row
            if row in self.view.running and queues[owner]:
                held[owner] += self.view.gpus[row]
                for each, of_each in others:
                    of_each[owner] += each.asked[row]
                heappush(turns, (self._share(owner, held, others), owner))

    def _share(self, owner: int, held: list[int], others: Sequence[tuple[NodeResource, list[int]]]) -> float:
        """What an owner holds over what it is due: GPUs, or the largest share of any resource."""
        if not others:
            return held[owner] / self.due[owner]
        shares = (of_each[owner] / each.total for each, of_each in others)
        return max(held[owner] / self.view.total_gpus, *shares) / self.due[owner]
