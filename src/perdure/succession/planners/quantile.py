"""Submit as early as all but few like jobs waited recently.

The order statistic that a quantile of the wait does not exceed with some confidence, as QBETS and BMBP take it (Brevik,
Nurmi, Wolski, "Predicting bounds on queuing delay", PPoPP 2006); here without change points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from scipy.stats import binom

from perdure.succession.planners.terms import by_wait, level_of, until_the_end
from perdure.succession.protocol import Decision, View


@dataclass(frozen=True, slots=True)
class Quantile:
    confidence: float = 0.5  # with which the order statistic is no smaller than the quantile
    name: str = "quantile"

    def decide(self, view: View) -> Decision:
        n, level = len(view.recent), level_of(view)
        if not n:
            return until_the_end(view, "no wait of a like job is known")
        place = min(n - 1, _place(self.confidence, n, level))
        return by_wait(view, sorted(view.recent)[place], f"the {level:.0%} quantile of the last {n} waits")


@cache
def _place(confidence: float, n: int, level: float) -> int:
    return int(binom.ppf(confidence, n, level))
