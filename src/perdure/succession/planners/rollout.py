"""Submit once a quantile of the simulated waits reaches to the end of the link."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.succession.planners.terms import by_wait, level_of, until_the_end
from perdure.succession.protocol import Decision, View


@dataclass(frozen=True, slots=True)
class Rollout:
    """It believes the forecast: where the scheduler's model is wrong, so are its decisions."""

    name: str = "rollout"

    def decide(self, view: View) -> Decision:
        if view.forecast is None:
            return until_the_end(view, "nobody can say how long the successor would wait")
        level = level_of(view)
        return by_wait(view, view.forecast.at(level), f"the {level:.0%} quantile of the simulated waits")
