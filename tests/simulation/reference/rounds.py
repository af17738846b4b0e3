"""Max-min fairness by rounds, as Gavel has it for GPUs of one kind.

Source: D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from tests.simulation.reference.cluster import Cluster, Job
from tests.simulation.reference.preempting import first_fit


def shares(jobs: list[Job], total: int) -> dict[Job, Fraction]:
    """Fill all alike until a job has what it asks for; go on with the others."""
    found: dict[Job, Fraction] = {}
    left, open_ = Fraction(total), list(jobs)
    while open_:
        level = left / len(open_)
        content = [job for job in open_ if job.gpus <= level]
        for job in content or open_:
            found[job] = min(Fraction(job.gpus), level)
            left -= found[job]
        open_ = [job for job in open_ if job not in found]
    return found


@dataclass
class MaxMin:
    """Each round those run that were given least of their share so far, for each of their GPUs; ties by arrival."""

    round_s: int
    owed: dict[Job, Fraction] = field(default_factory=dict)
    share: dict[Job, Fraction] = field(default_factory=dict)
    had_run: dict[Job, int] = field(default_factory=dict)
    last: int = 0
    due: int = 0

    def wakes(self, cluster: Cluster) -> bool:
        return cluster.now == self.due and bool(cluster.active)

    def decide(self, cluster: Cluster) -> list[Job]:
        if cluster.now < self.due:
            return cluster.running
        for job in cluster.active:
            given = job.gpus * (job.ran - self.had_run.get(job, 0))
            due = self.share.get(job, Fraction(0)) * (cluster.now - self.last)
            self.owed[job] = self.owed.get(job, Fraction(0)) + due - given
            self.had_run[job] = job.ran
        self.share = shares(cluster.active, cluster.total)
        self.last, self.due = cluster.now, cluster.now + self.round_s
        order = sorted(cluster.active, key=lambda job: (-(self.owed[job] + self.share[job]) / job.gpus, job.number))
        return first_fit(order, cluster)
