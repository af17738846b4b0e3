"""Submit once a simulated wait with a conformal margin reaches to the end of the link.

How far earlier forecasts for like jobs were off says how wide this one must be; so a wrong model of the scheduler costs
overlap, not interruptions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.succession.planners.terms import by_wait, level_of, until_the_end
from perdure.succession.protocol import Decision, Outcome, View
from perdure.waits.conformal import score_quantiles

FEW = 12  # outcomes: with fewer the forecast is believed
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Conformal:
    half_life: float = 56.0  # outcomes after which one weighs half
    offset_s: float = 4 * HOUR_S  # what is added to a forecast to give the scale of its error
    name: str = "conformal"

    def decide(self, view: View) -> Decision:
        if view.forecast is None:
            return until_the_end(view, "nobody can say how long the successor would wait")
        level = level_of(view)
        if len(view.outcomes) < FEW:
            return by_wait(view, view.forecast.at(level), f"the {level:.0%} quantile of the simulated waits")
        scale_s = self._scale(view.forecast.mean_s)
        wait_s = view.forecast.mean_s + self.margin(view.outcomes, level) * scale_s
        return by_wait(
            view, max(0.0, wait_s), f"the simulated wait, with a margin that held {level:.0%} of the last ones,"
        )

    def margin(self, outcomes: tuple[Outcome, ...], level: float) -> float:
        """The error that is not exceeded with a chance of `level`, over its scale."""
        said = np.array([each.said_s for each in outcomes])
        wait = np.array([each.wait_s for each in outcomes])
        open_ = np.array([not each.started for each in outcomes])
        age = np.arange(len(outcomes))[::-1]
        scores = (wait - said) / self._scale(said)
        return float(score_quantiles(scores, open_, 0.5 ** (age / self.half_life)).at((level,))[0])

    def _scale(self, said_s: NDArray[np.float64] | float) -> NDArray[np.float64] | float:
        return said_s + self.offset_s
