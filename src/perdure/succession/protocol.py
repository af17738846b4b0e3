"""What a planner sees of a chain, what it decides, and what a planner is.

A chain is a row of jobs, its links, each of which goes on where the one before it stopped. A planner decides when to
submit the successor of the running link: submitted too late the work is interrupted, too early both links hold GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

SAMPLES = 33  # equally likely waits that stand for a distribution given by its quantiles; odd, so one is the median


class Forecast(Struct, frozen=True):
    """The wait of the successor if it were submitted now, as equally likely waits.

    Samples of a simulation are one already; `of_quantiles` makes one of quantiles.
    """

    waits_s: tuple[float, ...]  # rising, never negative, at least one

    @classmethod
    def of_samples(cls, waits_s: Sequence[float] | NDArray[np.float64]) -> Forecast:
        """Of equally likely waits in any order."""
        return cls(tuple(np.sort(np.maximum(np.asarray(waits_s, np.float64), 0.0)).tolist()))

    @classmethod
    def of_quantiles(cls, levels: Sequence[float], waits_s: Sequence[float] | NDArray[np.float64]) -> Forecast:
        """Of quantiles at rising levels, such as `perdure.waits.forecast.WaitForecast` has."""
        middles = (np.arange(SAMPLES) + 0.5) / SAMPLES
        return cls.of_samples(np.interp(middles, levels, np.maximum.accumulate(waits_s)))

    @property
    def mean_s(self) -> float:
        return sum(self.waits_s) / len(self.waits_s)

    def at(self, level: float) -> float:
        """The wait that is not exceeded with a chance of `level`."""
        place = min(1.0, max(0.0, level)) * (len(self.waits_s) - 1)
        below = int(place)
        above = min(below + 1, len(self.waits_s) - 1)
        return self.waits_s[below] + (place - below) * (self.waits_s[above] - self.waits_s[below])


class ForecastOutcome(Struct, frozen=True):
    """What was forecast of a job like the successor when it was submitted, and what came of it."""

    said: Forecast
    wait_s: float  # its wait, or how long it has waited by now
    started: bool  # else the wait is known from below only


class View(Struct, frozen=True):
    """What a planner sees. Instants are seconds since the epoch."""

    now: float
    link_started: float  # of the running link
    link_ends: float  # when its walltime is over
    overlap_cost: float  # of a second in which both links hold GPUs, against 1 for a second of interruption
    max_interruption: float | None  # accepted probability of an interruption, instead of a price
    forecast: Forecast | None  # None where nobody can say
    recent: tuple[float, ...] = ()  # waits of like jobs that started recently, in seconds, newest last
    outcomes: tuple[ForecastOutcome, ...] = ()  # of earlier forecasts for like jobs, newest last
    queue: tuple[tuple[float, ...], ...] = ()  # looks at the queue (`queue_state.NAMES`), newest last

    @property
    def left(self) -> float:
        """Seconds until the walltime of the running link is over."""
        return self.link_ends - self.now


class Decision(Struct, frozen=True):
    """Whether to submit the successor now, and if not, when to ask again."""

    submit: bool
    again_at: float  # at which instant to ask again; `now` where it is submitted
    reason: str  # one sentence


class Planner(Protocol):
    """A way to decide when the successor is submitted; a frozen value of its settings. Deciding changes nothing."""

    @property
    def name(self) -> str:
        """As in the registry."""

    def decide(self, view: View) -> Decision:
        """Submit now, or ask again at an instant after now and not after `link_ends`.

        From `link_ends` on it always submits. It answers in well under a second, whatever the view lacks.
        """


class TrainingCase(Struct, frozen=True):
    """An instant of the past: what a planner saw then, and how long a successor submitted then waited."""

    view: View
    wait_s: float


def below(prefix: str, arrays: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Those whose names begin so, without that."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@runtime_checkable
class Trainable(Protocol):
    """A planner that learns first. Untrained it decides like the reactive planner."""

    @property
    def name(self) -> str:
        """As in the registry."""

    def decide(self, view: View) -> Decision:
        """As `Planner` has it."""

    def train(self, lessons: Sequence[TrainingCase], rng: np.random.Generator) -> Planner:
        """The same planner, trained. Lessons are in the order of time, and none is later than what it will decide."""

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """What it has learned, by name; empty where it has learned nothing."""

    def with_arrays(self, arrays: Mapping[str, NDArray[np.float64]]) -> Planner:
        """The same planner with what another has learned, which decides the same from then on.

        Raises `ValueError`, `KeyError`, `IndexError` or `TypeError` for arrays that no planner of this kind has.
        """
