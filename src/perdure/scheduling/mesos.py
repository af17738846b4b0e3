"""Mesos: free GPUs are offered to one framework after the other; each waits a while for an offer that is local.

The baseline of the study of Philly's cluster (ATC 2019): nobody is preempted, and locality is asked for before it is
given up. A framework here is all jobs of one application.

Source: B. Hindman et al., "Mesos: a platform for fine-grained resource sharing in the data center", NSDI 2011, sections
3 and 6; M. Zaharia et al., "Delay scheduling", EuroSys 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.scheduling.elastic import ElasticView, GpuType, Plan, Share, place_on_freest, types_for


@dataclass(slots=True)
class ResourceOffer:
    """Free GPUs: of each type, those of each node."""

    types: Sequence[GpuType]
    free: list[list[int]]

    @classmethod
    def of(cls, view: ElasticView) -> ResourceOffer:
        """What no job has now."""
        free = [[kind.gpus_per_node] * kind.nodes for kind in view.types]
        for job in view.jobs.values():
            if job.share is not None:
                for node, gpus in job.share.where:
                    free[job.share.gpu_type][node] -= gpus
        return cls(view.types, free)

    def local(self, gpus: int, kind: int) -> Share | None:
        """On one node, the fullest that has room; more than one has on whole nodes and the fullest for the rest."""
        size, free = self.types[kind].gpus_per_node, self.free[kind]
        whole, rest = divmod(gpus, size)
        empty = [node for node, left in enumerate(free) if left == size][:whole]
        fitting = [(left, node) for node, left in enumerate(free) if rest <= left and node not in empty] if rest else []
        if len(empty) < whole or (rest and not fitting):
            return None
        parts = [(node, size) for node in empty] + ([(min(fitting)[1], rest)] if rest else [])
        return self._take(kind, gpus, tuple(parts))

    def anywhere(self, gpus: int, kind: int) -> Share | None:
        """Wherever there are some, on nodes with most free first."""
        if sum(self.free[kind]) < gpus:
            return None
        return self._take(kind, gpus, place_on_freest(self.free[kind][:], gpus))

    def holds(self, gpus: int, kinds: Sequence[int]) -> bool:
        """Whether there are so many of one type, however scattered."""
        return any(sum(self.free[kind]) >= gpus for kind in kinds)

    def _take(self, kind: int, gpus: int, where: tuple[tuple[int, int], ...]) -> Share:
        for node, count in where:
            self.free[kind][node] -= count
        return Share(kind, len(where), gpus, where)


@dataclass(slots=True)
class Mesos:
    """GPUs go to the framework that has fewest, as long as one of its jobs accepts: the oldest that can.

    A job that is offered enough GPUs, but on more nodes than it needs, declines for `local_s` from then on, and takes
    what there is after. A running job keeps what it has to its end.
    """

    name: str = "mesos"
    round_s: float = 60.0
    adaptive: bool = False
    local_s: float = 300.0
    _declined_s: dict[int, float] = field(default_factory=dict)  # when it first did

    def plan(self, view: ElasticView) -> Plan:
        plan = {row: job.share for row, job in view.jobs.items() if job.share is not None}
        self._declined_s = {row: since_s for row, since_s in self._declined_s.items() if row in view.jobs}
        offer, held, waiting = ResourceOffer.of(view), dict[str, int](), dict[str, list[int]]()
        for row, job in sorted(view.jobs.items(), key=lambda entry: (entry[1].submit_s, entry[0])):
            held[job.application] = held.get(job.application, 0) + (0 if job.share is None else job.share.gpus)
            if job.share is None:
                waiting.setdefault(job.application, []).append(row)
        while waiting:
            framework = min(waiting, key=lambda name: (held[name], name))
            taken = self._accepted(view, waiting[framework], offer)
            if taken is None:  # nothing more for it in this round: others' offers only get smaller
                del waiting[framework]
                continue
            row, plan[row] = taken
            held[framework] += plan[row].gpus
            waiting[framework].remove(row)
            if not waiting[framework]:
                del waiting[framework]
        return plan

    def _accepted(self, view: ElasticView, rows: Sequence[int], offer: ResourceOffer) -> tuple[int, Share] | None:
        """The oldest job that accepts, and what it takes; those that wait for locality are noted."""
        for row in rows:
            job = view.jobs[row]
            gpus, kinds = job.asked_gpus, types_for(view, job)
            taken = next(filter(None, (offer.local(gpus, kind) for kind in kinds)), None)
            if taken is None and offer.holds(gpus, kinds):
                since_s = self._declined_s.setdefault(row, view.now_s)
                if view.now_s - since_s >= self.local_s:
                    taken = next(filter(None, (offer.anywhere(gpus, kind) for kind in kinds)), None)
            if taken is not None:
                return row, taken
        return None
