"""EASY and conservative backfilling.

Source: A. Mu'alem and D. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling
the IBM SP2 with backfilling", IEEE TPDS 12, 2001.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.reference.cluster import Cluster, Job


class Easy:
    """The first job that does not fit is promised a start; whoever passes it must not delay that."""

    def wakes(self, cluster: Cluster) -> bool:
        return False

    def decide(self, cluster: Cluster) -> list[Job]:
        now, chosen, waits = cluster.now, list(cluster.running), list(cluster.waiting)
        while waits and _busy(chosen) + waits[0].gpus <= cluster.total:
            chosen.append(waits.pop(0))
        if not waits:
            return chosen
        head = waits.pop(0)
        shadow = next(t for t in sorted({job.expected(now) for job in chosen}) if _fits(head, t, chosen, cluster))
        extra = cluster.total - head.gpus - _busy([job for job in chosen if job.expected(now) > shadow])
        for job in waits:
            if _busy(chosen) + job.gpus > cluster.total:
                continue
            if job.expected(now) <= shadow:
                chosen.append(job)
            elif job.gpus <= extra:
                chosen.append(job)
                extra -= job.gpus
        return chosen


def _busy(jobs: list[Job]) -> int:
    return sum(job.gpus for job in jobs)


def _fits(head: Job, tick: int, running: list[Job], cluster: Cluster) -> bool:
    return _busy([job for job in running if job.expected(cluster.now) > tick]) + head.gpus <= cluster.total


def _overdue(cluster: Cluster) -> bool:
    return any(job.limit and job.ran >= job.limit for job in cluster.running)


@dataclass
class Conservative:
    """Each job is promised a start when it comes: the earliest that delays no promise made before.

    `keeps`: a promise stands. Whenever a job has ended each promise is moved forward, in the order of arrival, as far
    as the others in their places allow. A job that runs over its limit makes those give way that it is in the way of;
    while it does, nothing but an end or an arrival is waited for. Else all promises are made anew, in the order of
    arrival, whenever something happens.
    """

    keeps: bool
    promised: dict[Job, int] = field(default_factory=dict)

    def wakes(self, cluster: Cluster) -> bool:
        due = any(self.promised[job] == cluster.now for job in cluster.waiting)
        return self.keeps and due and not _overdue(cluster)

    def decide(self, cluster: Cluster) -> list[Job]:
        now, overdue = cluster.now, _overdue(cluster)
        if not self.keeps:
            self.promised.clear()
        for job in cluster.waiting:
            if job not in self.promised or cluster.ended or overdue:
                self.promised.pop(job, None)
                self.promised[job] = self._earliest(job, cluster)
        return cluster.running + [job for job in cluster.waiting if self.promised[job] <= now]

    def _earliest(self, job: Job, cluster: Cluster) -> int:
        now = cluster.now
        taken = [(now, other.expected(now), other.gpus) for other in cluster.running]
        for other in cluster.waiting:
            if other in self.promised:
                begin = max(now, self.promised[other])
                taken.append((begin, begin + other.expected(now) - now, other.gpus))
        start, length = now, job.expected(now) - now
        while any(
            job.gpus + sum(gpus for begin, end, gpus in taken if begin <= second < end) > cluster.total
            for second in range(start, start + length)
        ):
            start += 1
        return start
