"""A planner that goes by forecasts, and by the waits of like jobs where there is no forecast, or none to go by.

What like jobs waited needs no model of the scheduler. It is worse than a forecast that is somewhat wrong, whose error
the margin makes up for (`conformal`), so only forecasts that are of the wrong order of magnitude are given up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from perdure.succession.planners.conformal import FEW
from perdure.succession.planners.quantile import Quantile
from perdure.succession.protocol import Decision, ForecastOutcome, Planner, View

WORST = 10.0  # times too long or too short are half of the medians that are still gone by
FLOOR_S = 60.0  # differences of shorter waits are the scheduler's cycles
LEAST_WAITS = 5  # of like jobs, of which a quantile says something


@dataclass(frozen=True, slots=True)
class OrLikeJobs:
    """The planner that it wraps, unless its forecasts fail it; the reason says which of the two has decided."""

    planner: Planner
    by_waits: Quantile = field(default_factory=Quantile)

    @property
    def name(self) -> str:
        return self.planner.name

    def decide(self, view: View) -> Decision:
        doubt = _doubt(view) if view.left > 0 and len(view.recent) >= LEAST_WAITS else None
        if doubt is None:
            return self.planner.decide(view)
        decision = self.by_waits.decide(view)
        return structs.replace(decision, reason=f"{doubt}: {decision.reason}")


def _doubt(view: View) -> str | None:
    """Why there is no forecast to go by; None where there is one."""
    if view.forecast is None:
        return "nobody can say how long the successor would wait"
    factor = _off_by(view.outcomes)
    if factor is None or factor <= WORST:
        return None
    return f"half of the last {len(view.outcomes)} forecasts were off by a factor of {factor:.0f} or more"


def _off_by(outcomes: tuple[ForecastOutcome, ...]) -> float | None:
    """By what factor half of the medians were off, at least; None with too few.

    A wait that goes on may yet be as long as was said.
    """
    if len(outcomes) < FEW:
        return None
    said_s = np.maximum([each.said.at(0.5) for each in outcomes], FLOOR_S)
    came_s = np.maximum([each.wait_s for each in outcomes], FLOOR_S)
    off = np.log10(came_s / said_s)
    started = np.array([each.started for each in outcomes])
    return float(10 ** np.median(np.where(started, np.abs(off), np.maximum(off, 0.0))))
