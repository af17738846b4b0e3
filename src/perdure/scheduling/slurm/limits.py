"""Limits of QOS and associations: what would be exceeded if a job started now.

A job is held by the limits of its QOS, of its partition's QOS, of its user's association, and of the accounts above
that. What a limit counts are running jobs. Limits on what is submitted are not looked at: the jobs of a trace were.

Source: slurmctld/acct_policy.c of SchedMD/slurm 284c3b9 for the reasons; resource_limits.html.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from perdure.scheduling.slurm.settings import RunningLimits

GPU = "GRES"
ARRAY = "JobArray"


@dataclass(frozen=True, slots=True)
class LimitHolder:
    """A QOS, an association or an array that has limits; `user` counts for those that hold for each user."""

    kind: str  # "QOS", "Assoc" or `ARRAY`
    key: Hashable
    user: int
    limits: RunningLimits


@dataclass(slots=True)
class LimitCounts:
    """Running jobs, and the GPUs that they hold, of each holder and of each of its users."""

    gpus: Counter[Hashable] = field(default_factory=Counter)
    jobs: Counter[Hashable] = field(default_factory=Counter)

    def hold(self, holders: tuple[LimitHolder, ...], gpus: int) -> None:
        """A job starts; or ends, where `gpus` is negative."""
        for holder in holders:
            for key in (holder.key, (holder.key, holder.user)):
                self.gpus[key] += gpus
                self.jobs[key] += 1 if gpus > 0 else -1

    def reason(self, holders: tuple[LimitHolder, ...], gpus: int) -> str | None:
        """The reason for which a job that would exceed a limit by starting now waits, in squeue's words; None if it may
        start.

        Holders are asked in order: the partition's QOS, the job's QOS, the association, the accounts above it.
        The first limit that would be exceeded gives the reason.

        >>> from perdure.scheduling.slurm.settings import RunningLimits
        >>> debug = LimitHolder("QOS", ("qos", "debug"), 0, RunningLimits(grp_gpus=8))
        >>> counts = LimitCounts()
        >>> counts.hold((debug,), 6)
        >>> counts.reason((debug,), 2), counts.reason((debug,), 4)
        (None, 'QOSGrpGRES')
        """
        for holder in holders:
            limits, whole, own = holder.limits, holder.key, (holder.key, holder.user)
            if _above(self.jobs[whole] + 1, limits.grp_jobs):
                return "JobArrayTaskLimit" if holder.kind == ARRAY else f"{holder.kind}GrpJobsLimit"
            if _above(self.gpus[whole] + gpus, limits.grp_gpus):
                return f"{holder.kind}Grp{GPU}"
            if _above(self.jobs[own] + 1, limits.max_jobs_per_user):
                return "QOSMaxJobsPerUserLimit" if holder.kind == "QOS" else "AssocMaxJobsLimit"
            if _above(self.gpus[own] + gpus, limits.max_gpus_per_user):
                return f"{holder.kind}Max{GPU}PerUser"
        return None


def refusal(holders: tuple[LimitHolder, ...], gpus: int, limit_s: float) -> str | None:
    """The reason for which a job can never start; None if there is none. `limit_s` is its time limit in seconds, 0 for
    none.

    In a replay it comes and waits for ever; `PolicyError` names it and the reason.
    """
    return next(_refusals(holders, gpus, limit_s), None)


def _refusals(holders: tuple[LimitHolder, ...], gpus: int, limit_s: float) -> Iterator[str]:
    """The limits that the job exceeds by itself, with nobody else running."""
    for holder in holders:
        limits, kind = holder.limits, holder.kind
        if _above(gpus, limits.max_gpus_per_job):
            yield f"{kind}Max{GPU}PerJob"
        if limits.max_wall_s is not None and limit_s > limits.max_wall_s:
            yield f"{kind}MaxWallDurationPerJobLimit"
        if _above(gpus, limits.grp_gpus):
            yield f"{kind}Grp{GPU}"
        if _above(gpus, limits.max_gpus_per_user):
            yield f"{kind}Max{GPU}PerUser"
        if 0 in (limits.grp_jobs, limits.max_jobs_per_user):
            yield f"{kind}MaxJobsLimit"


def _above(number: int, limit: int | None) -> bool:
    return limit is not None and number > limit
