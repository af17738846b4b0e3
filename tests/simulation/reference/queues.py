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
        chosen = list(cluster.running)
        for job in sorted(cluster.waiting, key=lambda job: (self.key(job), job.number)):
            if cluster.fits(job, chosen):
                chosen.append(job)
            elif self.blocks:
                break
        return chosen


@dataclass
class Turns:
    """Dominant resource fairness; capacities of virtual clusters, which are of GPUs alone.

    The owner that holds least of its due starts its oldest job. Once that does not fit the owner is out.
    """

    due: Mapping[str, int]
    dominant: bool = False  # what an owner holds is the largest of its shares of all resources

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        chosen = list(cluster.running)
        waits = sorted(cluster.waiting, key=lambda job: job.number)
        taking_part = {job.owner for job in waits}
        while taking_part:
            holds = {
                owner: self._holds([job for job in chosen if job.owner == owner], cluster) for owner in taking_part
            }
            owner = min(taking_part, key=lambda owner: (holds[owner] / self.due[owner], owner))
            oldest = next((job for job in waits if job.owner == owner and job not in chosen), None)
            if oldest is None or not cluster.fits(oldest, chosen):
                taking_part.remove(owner)
            else:
                chosen.append(oldest)
        return chosen

    def _holds(self, jobs: list[Job], cluster: Cluster) -> Fraction:
        counted = cluster.has if self.dominant else (cluster.total,)
        return max(Fraction(sum(job.asks[r] for job in jobs), has) for r, has in enumerate(counted))


class Tetris:
    """The job that fits with the greatest alignment plus eps over its work left; then the next one that fits.

    Alignment is what is asked times what is free, over the square of all there is, summed over the resources; work is
    the running time left times the shares of all resources together. Each score is worked out after each start. Eps
    makes both terms equal on average over the jobs that fitted when the pass began.
    """

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        chosen, candidates = list(cluster.running), list(cluster.waiting)
        crowd = [job for job in candidates if cluster.fits(job, chosen)]

        def soon(job: Job) -> Fraction:
            if not cluster.others:
                return Fraction(1, max(1, job.gpus * job.left))
            return 1 / (max(1, job.left) * sum(map(Fraction, job.asks, cluster.has), Fraction(0)))

        while candidates := [job for job in candidates if job not in chosen and cluster.fits(job, chosen)]:
            free = [has - sum(job.asks[r] for job in chosen) for r, has in enumerate(cluster.has)]

            def alignment(job: Job, free: list[int] = free) -> Fraction:
                parts = zip(job.asks, free, cluster.has, strict=True)
                return sum((Fraction(asked * left, has * has) for asked, left, has in parts), Fraction(0))

            eps = sum(map(alignment, crowd)) / sum(map(soon, crowd))
            best = max(candidates, key=lambda job: (alignment(job) + eps * soon(job), -job.number))
            chosen.append(best)
        return chosen
