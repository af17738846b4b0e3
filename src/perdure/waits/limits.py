"""Which limit of a QOS or an account a job would exceed by starting now, how much of it is used, and by which jobs.

Limits count jobs of all partitions. The order is Slurm's: the partition's QOS, the job's QOS, the user in its account,
the accounts above. A limit that a QOS sets takes the place of the same one further on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import structs

from perdure.scheduling.slurm.site_limits import CPUS, GPUS, NODES, QosLimits, SiteLimits, TresLimits
from perdure.waits.queue import Queue, QueuedJob

_WORDS = {GPUS: "GPUs", CPUS: "CPUs", NODES: "nodes", "": "running jobs"}
_COUNTED = (GPUS, CPUS, NODES)
Counts = tuple[str, str, str]
"""Jobs that count together: "QOS" or "account", its name, and the user where those of one count alone."""


@dataclass(frozen=True, slots=True)
class LimitInTheWay:
    """A limit that a job would exceed."""

    holder: str  # "QOS gold", "account lab", "mira in account lab"
    tres: str  # "" counts jobs
    most: int
    asked: int
    of_user: bool  # it holds for the jobs of one user
    jobs: tuple[QueuedJob, ...]  # that run and count for it

    @property
    def what(self) -> str:
        return _WORDS[self.tres]

    @property
    def used(self) -> int:
        return sum(amount(job, self.tres) for job in self.jobs)

    @property
    def never(self) -> bool:
        """Whether the job exceeds it by itself."""
        return self.asked > self.most

    def free_s(self, now_s: float) -> float | None:
        """When enough of its jobs have ended, if each takes its whole limit; None where that is open."""
        left = self.used + self.asked - self.most
        ends = sorted(
            (max(now_s, job.start_s + job.walltime_s), job.job_id, amount(job, self.tres))
            for job in self.jobs
            if job.start_s is not None and job.walltime_s is not None
        )
        for end_s, _, given_back in ends:
            left -= given_back
            if left <= 0:
                return end_s
        return None


def with_defaults(job: QueuedJob, limits: SiteLimits) -> QueuedJob:
    """A job that is not submitted yet, with the account and the QOS that it would get."""
    own = limits.of_user(job.account, job.user)
    if own is None:
        return job
    return structs.replace(job, account=job.account or own.account, qos=job.qos or own.default_qos or "normal")


def limit_in_the_way(job: QueuedJob, queue: Queue, limits: SiteLimits) -> LimitInTheWay | None:
    """The first limit that it would exceed; of the kind that the manager's reason names, where it gives one."""
    reason = job.reason if job.reason.startswith(("QOS", "Assoc")) else ""
    kind, group = ("QOS" if reason.startswith("QOS") else "Assoc"), "Grp" in reason
    return next(
        (
            each
            for is_qos, each in _limits(job, queue, limits)
            if each.used + each.asked > each.most
            and (not reason or (is_qos == (kind == "QOS") and each.of_user != group))
        ),
        None,
    )


def _limits(job: QueuedJob, queue: Queue, limits: SiteLimits) -> Iterator[tuple[bool, LimitInTheWay]]:
    """All limits that hold for a job, in order; whether of a QOS."""
    counted: dict[Counts, list[QueuedJob]] = {}
    for each in queue.running():
        for counts in counts_for(each, queue, limits):
            counted.setdefault(counts, []).append(each)
    for on in limits_on(job, queue, limits):
        its = tuple(counted.get(on.counts, ()))
        yield on.counts[0] == "QOS", LimitInTheWay(on.holder, on.tres, on.most, amount(job, on.tres), on.of_user, its)


class LimitOnJob(NamedTuple):
    """A limit that holds for a job; `counts`: of which jobs together."""

    holder: str
    tres: str
    most: int
    of_user: bool
    counts: Counts


def counts_for(job: QueuedJob, queue: Queue, limits: SiteLimits) -> Iterator[Counts]:
    """For the limits of which a job counts while it runs."""
    for qos in _qos_of(job, queue, limits):
        yield "QOS", qos.name, ""
        yield "QOS", qos.name, job.user
    account = _account_of(job, limits)
    yield "account", account, job.user
    yield from (("account", above.account, "") for above in limits.accounts_above(account))


def limits_on(job: QueuedJob, queue: Queue, limits: SiteLimits) -> Iterator[LimitOnJob]:
    """All limits that hold for a job, in order. One that a QOS sets takes the place of the same one further on."""
    taken: set[tuple[bool, str]] = set()  # (of a user, TRES) that a QOS has set
    for qos in _qos_of(job, queue, limits):
        own = [each for each in _of(qos.limits) if each[:2] not in taken]
        for of_user, tres, most in own:
            yield LimitOnJob(f"QOS {qos.name}", tres, most, of_user, ("QOS", qos.name, job.user if of_user else ""))
        taken.update(each[:2] for each in own)
    account = _account_of(job, limits)
    user = limits.of_user(job.account, job.user)
    holders = [(f"{job.user} in account {account}", user, job.user)] if user is not None else []
    holders += [(f"account {above.account}", above, "") for above in limits.accounts_above(account)]
    for holder, association, of in holders:
        for of_user, tres, most in _of(association.limits):
            if (of_user, tres) not in taken:
                yield LimitOnJob(holder, tres, most, of_user, ("account", association.account, of))


def _account_of(job: QueuedJob, limits: SiteLimits) -> str:
    """Where a job names none, the first of its user that accounting names."""
    own = None if job.account else limits.of_user("", job.user)
    return job.account if own is None else own.account


def _qos_of(job: QueuedJob, queue: Queue, limits: SiteLimits) -> list[QosLimits]:
    """The QOS that hold for a job, the one that goes before the other first."""
    known = {each.name: each for each in limits.qos}
    partitions = (queue.partition(name) for name in job.partitions[:1])
    of_partition = [known[each.qos] for each in partitions if each is not None and each.qos in known]
    own = [known[job.qos]] if job.qos in known else []
    if own == of_partition:
        return own
    return own + of_partition if own and own[0].over_partition else of_partition + own


def amount(job: QueuedJob, tres: str) -> int:
    """What a job counts for a limit."""
    return {GPUS: job.gpus, CPUS: job.cpus, NODES: job.nodes, "": 1}[tres]


def _of(limits: TresLimits) -> Iterator[tuple[bool, str, int]]:
    """Whether of a user, the TRES ("" counts jobs), and the limit."""
    if limits.grp_jobs is not None:
        yield False, "", limits.grp_jobs
    yield from ((False, tres, limits.grp_tres[tres]) for tres in _COUNTED if tres in limits.grp_tres)
    if limits.jobs_per_user is not None:
        yield True, "", limits.jobs_per_user
    yield from ((True, tres, limits.tres_per_user[tres]) for tres in _COUNTED if tres in limits.tres_per_user)
