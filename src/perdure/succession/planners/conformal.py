"""Submit once a quantile of the simulated waits, with a conformal margin, reaches to the end of the link.

How far the same quantile of earlier forecasts for like jobs fell short says what must be added to this one. That is
conformalized quantile regression (Romano, Patterson, Candes, NeurIPS 2019), one-sided, in which newer outcomes weigh
more and jobs that still wait count (`perdure.waits.conformal`). So a wrong model of the scheduler costs overlap, and
few interruptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perdure.succession.planners.terms import by_wait, level_of, until_the_end
from perdure.succession.protocol import Decision, ForecastOutcome, View
from perdure.waits.conformal import score_quantiles

FEW = 12  # outcomes: with fewer the forecast is believed
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Conformal:
    half_life: float = 56.0  # outcomes after which one weighs half
    offset_s: float = (
        4 * HOUR_S
    )  # added to a quantile it gives the scale of its error: short ones are off by more of it
    name: str = "conformal"

    def decide(self, view: View) -> Decision:
        if view.forecast is None:
            return until_the_end(view, "nobody can say how long the successor would wait")
        level = level_of(view)
        simulated_s = view.forecast.at(level)
        if len(view.outcomes) < FEW:
            return by_wait(view, simulated_s, f"the {level:.0%} quantile of the simulated waits")
        wait_s = simulated_s + self.margin(view.outcomes, level) * (simulated_s + self.offset_s)
        return by_wait(
            view, max(0.0, wait_s), f"the {level:.0%} quantile of the simulated waits, corrected by earlier ones,"
        )

    def margin(self, outcomes: Sequence[ForecastOutcome], level: float) -> float:
        """By how much quantiles fall short, over their scale, with a chance of `level` that they do so by no more."""
        said_s = np.array([each.said.at(level) for each in outcomes])
        wait_s = np.array([each.wait_s for each in outcomes])
        waits_on = np.array([not each.started for each in outcomes])
        age = np.arange(len(outcomes))[::-1]
        scores = (wait_s - said_s) / (said_s + self.offset_s)
        return float(score_quantiles(scores, waits_on, 0.5 ** (age / self.half_life)).at((level,))[0])
