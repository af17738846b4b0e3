"""What is known of jobs that are over: how many were there, and how long one that is like them runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OUTRUN = 0.05  # of a job that has run longer than all that were like it, so much is taken to be left


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """What is known of jobs that are over, and of attempts that are."""

    lives: Sequence[tuple[float, float]] = ()  # when each came and went
    shares: Sequence[float] = ()  # of their limits that they ran
    run_s: Sequence[float] = ()  # how long they ran
    most_gpus: Mapping[str, int] = field(default_factory=dict)  # that jobs of the queue have run on

    def expected_s(self, walltime_s: float | None, ran_s: float) -> float:
        """How long a job is expected to run in all, of which it has run `ran_s`: as past jobs that ran longer did."""
        past = self.run_s if walltime_s is None else [share * walltime_s for share in self.shares]
        longer = [each for each in past if each > ran_s]
        return sum(longer) / len(longer) if longer else max(walltime_s or 0.0, ran_s / (1.0 - OUTRUN), 1.0)
