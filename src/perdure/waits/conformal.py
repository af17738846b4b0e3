"""Conformal quantiles: how far off earlier answers were says how wide the next ones must be.

A score is how far a wait lay from its answer, in units of the spread that the answer gave itself. With scores that are
exchangeable with the next one, the k-th smallest of n, ``k = ceil((n + 1) level)``, is not exceeded with at least the
chance `level` (Vovk, Gammerman, Shafer, "Algorithmic learning in a random world", 2005). Here newer scores weigh more
(Barber et al., "Conformal prediction beyond exchangeability", Ann. Statist. 51, 2023). The waits of jobs that have not
started are known from below only, and long waits become known late: leaving them out would make intervals too short. So
the distribution is estimated by the product limit (Kaplan and Meier 1958), in which such a score counts until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
PROMISED = 0.8  # share that the interval is to hold
SLACK = 0.05  # below the promise by more than that, last week's intervals count as too narrow
WIDEST = 2.0  # intervals are widened by at most that


@dataclass(frozen=True, slots=True)
class ScoreQuantiles:
    """The distribution of scores. Build it with `score_quantiles`."""

    scores: Column  # rising
    reached: Column  # the estimated chance of a score of at most this one; the last falls short of 1

    def at(self, levels: Sequence[float]) -> Column:
        """(n_levels,) the score at each level, on the safe side: away from the middle, where it lies between two."""
        if not len(self.scores):
            return np.zeros(len(levels))
        last = len(self.scores) - 1
        above = np.searchsorted(self.reached, np.asarray(levels) - 1e-12)
        below = np.searchsorted(self.reached, np.asarray(levels) + 1e-12, "right") - 1
        place = np.where(np.asarray(levels) >= 0.5, np.minimum(above, last), np.maximum(below, 0))
        return np.maximum.accumulate(self.scores[place])


def score_quantiles(scores: Column, at_least: NDArray[np.bool_], weights: Column) -> ScoreQuantiles:
    """The weighted distribution of scores, of which those `at_least` are only known to be no smaller.

    The score to come counts as one more, of the mean weight, that may lie beyond all.
    """
    order = np.lexsort((at_least, scores))
    weight, ends = weights[order], ~at_least[order]
    at_risk = np.cumsum(weight[::-1])[::-1] + (weight.mean() if len(weight) else 0.0)
    left: Column = np.cumprod(np.where(ends, 1 - weight / at_risk, 1.0)).astype(np.float64)
    return ScoreQuantiles(scores[order][ends], 1 - left[ends])


def widening(ratio: Column, promised: float = PROMISED) -> tuple[float, float]:
    """The share of recent intervals that held, and by how much intervals must be widened: 1 where enough did.

    `ratio` (n,) is how far from the answer each wait lay, over how far the interval reached on that side. Where the
    share falls short by more than `SLACK`, intervals become as wide as would have held the promise.
    """
    if not len(ratio):
        return promised, 1.0
    held = float((ratio <= 1).mean())
    if held >= promised - SLACK:
        return held, 1.0
    return held, float(np.clip(np.quantile(ratio, promised), 1.0, WIDEST))
