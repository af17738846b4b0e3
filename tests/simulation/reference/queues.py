"""Policies that never preempt: a queue in some order, or a queue an owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from tests.simulation.reference.cluster import Cluster, Job


@dataclass
class Queue:
    """The waiting jobs in an order; one that does not fit holds up the others, or is passed over."""

    blocks: bool
    key: Callable[[Job], int] = lambda job: job.number

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        chosen, free = list(cluster.running), cluster.free
        for job in sorted(cluster.waiting, key=lambda job: (self.key(job), job.number)):
            if job.gpus <= free:
                chosen.append(job)
                free -= job.gpus
            elif self.blocks:
                break
        return chosen


@dataclass
class Turns:
    """Dominant resource fairness of GPUs alone; capacities of virtual clusters.

    The owner that holds least of its due starts its oldest job. Once that does not fit the owner is out.
    """

    due: Mapping[str, int]

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        chosen, free = list(cluster.running), cluster.free
        waits = sorted(cluster.waiting, key=lambda job: job.number)
        taking_part = {job.owner for job in waits}
        while taking_part:
            holds = {owner: sum(job.gpus for job in chosen if job.owner == owner) for owner in taking_part}
            owner = min(taking_part, key=lambda owner: (Fraction(holds[owner], self.due[owner]), owner))
            oldest = next((job for job in waits if job.owner == owner and job not in chosen), None)
            if oldest is None or oldest.gpus > free:
                taking_part.remove(owner)
            else:
                chosen.append(oldest)
                free -= oldest.gpus
        return chosen


class Tetris:
    """The job that fits with the greatest alignment plus eps over its GPU time left; then the next one that fits.

    Alignment is GPUs asked times GPUs free, over the square of all. Each score is worked out after each start. Eps
    makes both terms equal on average over the jobs that fitted when the pass began.
    """

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        chosen, free = list(cluster.running), cluster.free
        candidates = [job for job in cluster.waiting if job.gpus <= free]
        crowd = list(candidates)
        while candidates := [job for job in candidates if job.gpus <= free and job not in chosen]:

            def alignment(job: Job, free: int = free) -> Fraction:
                return Fraction(job.gpus, cluster.total) * Fraction(free, cluster.total)

            def soon(job: Job) -> Fraction:
                return Fraction(1, max(1, job.gpus * job.left))

            eps = sum(map(alignment, crowd)) / sum(map(soon, crowd))
            best = max(candidates, key=lambda job: (alignment(job) + eps * soon(job), -job.number))
            chosen.append(best)
            free -= best.gpus
        return chosen
