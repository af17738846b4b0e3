"""Policies that give all GPUs out anew whenever something happens, job by job in an order, passing over what does not
fit: shortest remaining first, and quotas that are lent out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.simulation.reference.cluster import Cluster, Job


def first_fit(order: Iterable[Job], cluster: Cluster) -> list[Job]:
    chosen: list[Job] = []
    for job in order:
        if cluster.fits(job, chosen):
            chosen.append(job)
    return chosen


@dataclass
class Least:
    """The jobs with the least key run; among equal ones those that run already, then the earlier arrival."""

    key: Callable[[Job], int]

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        order = sorted(cluster.active, key=lambda job: (self.key(job), job.since is None, job.number))
        return first_fit(order, cluster)


@dataclass
class Lending:
    """Philly: who is within the quota of its virtual cluster goes first, others borrow.

    Borrowers make room for jobs within quota once nine tenths of all GPUs are busy, the last one that started first.
    Nobody makes room where all can run.
    """

    quota: Mapping[str, int]

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        left = dict(self.quota)
        kept, lent = self._split(sorted(cluster.running, key=lambda job: (job.since, job.number)), left)
        entitled, borrowing = self._split(cluster.waiting, left)
        if len(first_fit(cluster.active, cluster)) == len(cluster.active):
            return cluster.running + entitled + borrowing
        if 10 * (cluster.total - cluster.free) < 9 * cluster.total:
            return first_fit(kept + lent + entitled + borrowing, cluster)
        return first_fit(kept + entitled + lent + borrowing, cluster)

    @staticmethod
    def _split(jobs: list[Job], left: dict[str, int]) -> tuple[list[Job], list[Job]]:
        within, beyond = [], []
        for job in jobs:
            if job.gpus <= left[job.owner]:
                left[job.owner] -= job.gpus
                within.append(job)
            else:
                beyond.append(job)
        return within, beyond
