"""Least attained service in queues (Tiresias): LAS, 2D-LAS and 2D-Gittins.

Source: J. Gu et al., "Tiresias: a GPU cluster manager for distributed deep learning", NSDI 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.simulation.reference.cluster import Cluster, Job
from tests.simulation.reference.preempting import first_fit


def gittins(samples: Sequence[int], quantum: int, attained: int) -> Fraction:
    """P(S - a <= D | S > a) / E[min(S - a, D) | S > a] at the last sample that the attained service has passed."""
    a = max([0, *(sample for sample in samples if sample <= attained)])
    beyond = [sample - a for sample in samples if sample > a]
    if not beyond:
        return Fraction(0)
    return Fraction(sum(rest <= quantum for rest in beyond), sum(min(rest, quantum) for rest in beyond))


@dataclass
class Queues:
    """Jobs sink a queue whenever their service reaches its limit; in a queue those that run go first.

    One that has run and then waited `knob` times as long rises to the first queue and begins there from nothing.
    """

    limits: Sequence[int]
    counts_gpus: bool
    knob: Fraction = Fraction(0)
    samples: Sequence[int] = ()  # of past services: then the greatest Gittins index goes first in a queue
    queues: list[list[Job]] = field(default_factory=list)
    served: dict[Job, int] = field(default_factory=dict)  # seconds since it was last in the first queue
    waited: dict[Job, int] = field(default_factory=dict)
    seen: dict[Job, tuple[int, int]] = field(default_factory=dict)  # when it was last counted, and what it had run then

    def wakes(self, cluster: Cluster) -> bool:
        self._count(cluster)
        return any(self._is_down(job, q) or self._is_up(job, q) for q, job in self._places())

    def decide(self, cluster: Cluster) -> list[Job]:
        self._admit(cluster)
        self._count(cluster)
        for queue in self.queues:
            queue.sort(key=lambda job: job.since is None)  # stable: else as they stood
        for q, job in sorted(self._places(), key=lambda place: place[1].number):
            if self._is_down(job, q):
                self._move(job, q, q + 1)
            elif self._is_up(job, q):
                self._move(job, q, 0)
                self.served[job] = self.waited[job] = 0
                job.promoted += 1
        if self.samples:
            for queue in self.queues:
                queue.sort(key=lambda job: (-gittins(self.samples, 3250, job.gpus * self.served[job]), job.number))
        return first_fit([job for queue in self.queues for job in queue], cluster)

    def _places(self) -> list[tuple[int, Job]]:
        return [(q, job) for q, queue in enumerate(self.queues) for job in queue]

    def _admit(self, cluster: Cluster) -> None:
        self.queues = self.queues or [[] for _ in range(len(self.limits) + 1)]
        active = cluster.active
        self.queues = [[job for job in queue if job in active] for queue in self.queues]
        for job in active:
            if job not in self.served:
                self.queues[0].append(job)
                self.served[job] = self.waited[job] = 0
                self.seen[job] = cluster.now, 0

    def _count(self, cluster: Cluster) -> None:
        for _, job in self._places():
            then, had_run = self.seen[job]
            ran = job.ran - had_run
            self.served[job] += ran
            if self.served[job]:
                self.waited[job] += cluster.now - then - ran
            self.seen[job] = cluster.now, job.ran

    def _is_down(self, job: Job, q: int) -> bool:
        width = job.gpus if self.counts_gpus else 1
        return job.since is not None and q < len(self.limits) and width * self.served[job] >= self.limits[q]

    def _is_up(self, job: Job, q: int) -> bool:
        due = int(self.knob * self.served[job])
        return bool(job.since is None and q and self.knob and self.served[job] and self.waited[job] >= due)

    def _move(self, job: Job, q: int, to: int) -> None:
        self.queues[q].remove(job)
        self.queues[to].append(job)
