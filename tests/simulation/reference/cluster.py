"""Jobs on a cluster whose GPUs, and perhaps other resources, are only counted, second by second."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(eq=False)
class Job:
    """What it asks for, and how far it is. Times are whole seconds."""

    number: int  # in the order of arrival
    gpus: int
    submit: int
    run: int
    limit: int | None = None
    owner: str = ""  # whom the policy counts: a user or a virtual cluster
    others: tuple[int, ...] = ()  # what it asks for besides GPUs
    ran: int = 0
    since: int | None = None  # when it was last started; None while it does not run
    start: int | None = None
    end: int | None = None
    preempted: int = 0
    promoted: int = 0

    @property
    def asks(self) -> tuple[int, ...]:
        return self.gpus, *self.others

    @property
    def left(self) -> int:
        return self.run - self.ran

    def expected(self, now: int) -> int:
        """When it is over by its limit, or else in truth, if it runs now or starts now; overdue: the next second."""
        return max(now + 1, now + (self.limit or self.run) - self.ran)


@dataclass
class Cluster:
    total: int
    others: tuple[int, ...] = ()
    now: int = 0
    waiting: list[Job] = field(default_factory=list)  # in the order in which they came
    running: list[Job] = field(default_factory=list)
    ended: list[Job] = field(default_factory=list)  # at this instant

    @property
    def free(self) -> int:
        return self.total - sum(job.gpus for job in self.running)

    @property
    def has(self) -> tuple[int, ...]:
        return self.total, *self.others

    def fits(self, job: Job, beside: Iterable[Job]) -> bool:
        """Whether the cluster holds this job beside these."""
        together = [job, *beside]
        return all(sum(each.asks[r] for each in together) <= has for r, has in enumerate(self.has))

    @property
    def active(self) -> list[Job]:
        return sorted(self.waiting + self.running, key=lambda job: job.number)


class Policy(Protocol):
    def wakes(self, cluster: Cluster) -> bool:
        """Whether it must decide at this second though no job came or ended."""

    def decide(self, cluster: Cluster) -> Iterable[Job]:
        """The jobs that run from now on, in the order in which they are started."""


def schedule(jobs: list[Job], total: int, policy: Policy, others: tuple[int, ...] = ()) -> None:
    """Run all jobs to their ends."""
    cluster = Cluster(total, others)
    while any(job.end is None for job in jobs):
        if _happens(jobs, cluster) or policy.wakes(cluster):
            _carry_out(cluster, list(policy.decide(cluster)))
        if all(job.left for job in cluster.running):  # else a job that takes no time ends at this very instant
            for job in cluster.running:
                job.ran += 1
            cluster.now += 1
        assert cluster.now < 100_000, "it never ends"


def _happens(jobs: list[Job], cluster: Cluster) -> bool:
    """Let jobs end, then let jobs come."""
    cluster.ended = [job for job in cluster.running if not job.left]
    for job in cluster.ended:
        cluster.running.remove(job)
        job.end, job.since = cluster.now, None
    known = {*cluster.waiting, *cluster.running}
    come = [job for job in jobs if job.submit <= cluster.now and job.end is None and job not in known]
    cluster.waiting += come
    return bool(cluster.ended or come)


def _carry_out(cluster: Cluster, chosen: list[Job]) -> None:
    assert not chosen or cluster.fits(chosen[0], chosen[1:])
    for job in [job for job in cluster.running if job not in chosen]:
        cluster.running.remove(job)
        cluster.waiting.append(job)
        job.preempted, job.since = job.preempted + 1, None
    for job in chosen:
        if job in cluster.waiting:
            cluster.waiting.remove(job)
            cluster.running.append(job)
            job.since = cluster.now
            job.start = cluster.now if job.start is None else job.start
