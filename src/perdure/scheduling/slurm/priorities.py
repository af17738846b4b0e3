"""Priorities as slurmctld keeps them: calculated each PriorityCalcPeriod, for all jobs at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.errors import ConfigError
from perdure.scheduling.slurm.fair_tree import fair_shares
from perdure.scheduling.slurm.priority import age_factor, priority
from perdure.scheduling.slurm.requests import JobRequests
from perdure.scheduling.slurm.settings import PrioritySettings
from perdure.scheduling.slurm.usage import DecayedUsage, decay_of
from perdure.scheduling.view import View


@dataclass(slots=True)
class Priorities:
    """The priorities of one run. `usage` is None where no priority depends on it.

    Between two calculations the priority of a job stands still: the order of the queue changes at multiples of the
    period only.
    """

    requests: JobRequests
    age_weight: int
    fair_share_weight: int
    max_age: float  # ticks
    period: int
    usage: DecayedUsage | None
    calculated: int = 0  # the tick of the last calculation
    shares: list[float] = field(default_factory=list)  # the fair-share factor of each association

    @classmethod
    def of(cls, view: View, requests: JobRequests, settings: PrioritySettings) -> Priorities:
        """From the settings; times in ticks. Raises `ConfigError` for NO_FAIR_TREE, as only Fair Tree is modelled."""
        weights, per_s = settings.weights, view.ticks_per_s
        period = max(1, round(settings.calc_period_s * per_s))
        if not settings.multifactor:
            return cls(requests, 0, 0, 1.0, period, None)
        if weights.fairshare and "NO_FAIR_TREE" in settings.flags:
            what = "NO_FAIR_TREE: only the fair tree is modelled"
            raise ConfigError("PriorityFlags", what, "Set PriorityWeightFairshare to 0, or leave the flag out")
        usage = None
        if weights.fairshare:
            decay = decay_of(settings.calc_period_s, settings.decay_half_life_s)
            known = requests.associations.known
            usage = DecayedUsage(len(known), period, decay, tuple(each.usage_s * per_s for each in known))
        return cls(requests, weights.age, weights.fairshare, settings.max_age_s * per_s, period, usage)

    def calculate(self, now: int) -> None:
        """Make the calculation that is due."""
        calculated = now - now % self.period
        if self.usage is not None and (calculated > self.calculated or not self.shares):
            self.usage.calculate(now)
            self.shares = fair_shares(self.requests.associations.tree, self.usage.used)
        self.calculated = calculated

    def of_job(self, row: int, since: int) -> int:
        """The priority of a job that accrues age since a tick."""
        age = self.age_weight * age_factor(self.calculated, since, self.max_age)
        share = 0.0
        if self.usage is not None:
            share = self.fair_share_weight * self.shares[self.requests.associations.of_job[row]]
        return priority(float(self.requests.fixed[row]), age, share)
