"""Which of several ways to run a job ends first, each with its own wait: now on few GPUs, or later on many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, hypot, sqrt

from scipy.special import ndtri

_Z = float(ndtri(0.9))  # of the ends of an interval that holds 80 %


@dataclass(frozen=True, slots=True)
class TimeSpread:
    """Seconds as a median between the ends of an interval that holds 80 % of cases."""

    low_s: float
    middle_s: float
    high_s: float

    @property
    def deviation_s(self) -> float:
        """As if it were normal."""
        return (self.high_s - self.low_s) / (2 * _Z)


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """One way to run the job."""

    name: str
    gpus: int
    wait: TimeSpread
    run: TimeSpread

    @property
    def end(self) -> TimeSpread:
        """From now until its end; wait and run err independently of each other."""
        middle = self.wait.middle_s + self.run.middle_s
        below = sqrt((self.wait.middle_s - self.wait.low_s) ** 2 + (self.run.middle_s - self.run.low_s) ** 2)
        above = sqrt((self.wait.high_s - self.wait.middle_s) ** 2 + (self.run.high_s - self.run.middle_s) ** 2)
        return TimeSpread(middle - below, middle, middle + above)

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.run.middle_s / 3600


def chance_before(one: GpuChoice, other: GpuChoice, one_cause: bool = False) -> float:
    """The chance that `one` ends before `other`, by normal errors; of two that are certain, 1, 0 or one half.

    With `one_cause` both running times are off together, as where the same estimate of computing makes them.
    """
    gap = other.end.middle_s - one.end.middle_s
    if one_cause:
        runs = one.run.deviation_s - other.run.deviation_s
        deviation = hypot(one.wait.deviation_s, other.wait.deviation_s, runs)
    else:
        deviation = hypot(one.end.deviation_s, other.end.deviation_s)
    if deviation == 0:
        return 0.5 if gap == 0 else float(gap > 0)
    return 0.5 * (1 + erf(gap / deviation / sqrt(2)))


def by_end(choices: Sequence[GpuChoice]) -> list[GpuChoice]:
    """The choices, the one that most likely ends first in front."""
    return sorted(choices, key=lambda choice: (choice.end.middle_s, choice.gpus))
