"""SCORE: the fewest components that cover the bad paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure.blame.equivalence import representatives
from perdure.blame.verdict import Suspect, suspect
from perdure.blame.window import Window


@dataclass(frozen=True, slots=True)
class Score:
    """Boolean tomography: paths are good or bad; greedy cover by components with many bad paths.

    Claim: right where failures are hard and paths have units enough to be called good or bad.

    Path i is bad where ``e_i / n_i > bad``. Of the components with a share of bad paths of `hit_ratio` or more, the
    one that covers most bad paths not yet covered is blamed, until none covers two. One bad path is not a pattern.

    Without the two bounds it is the greedy set cover, which takes at most ``1 + log(bad paths)`` times as many
    components as needed. Strength is the number of bad paths that it newly covers.

    Do not use it for gray failures: most of their paths are clean.

    Source: R. Kompella et al., "IP fault localization via risk modeling" (SCORE), NSDI 2005.
    """

    bad: float = 0.05
    hit_ratio: float = 0.3
    name: str = "score"

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        """The suspects by the bad paths that each newly covers; of equal cover, the larger share of bad paths is taken
        first.
        """
        used = window.units > 0
        left = (used & (window.failures > self.bad * window.units)).astype(np.float64)
        ratio = window.totals(left) / np.maximum(window.totals(used.astype(np.float64)), 1)
        able = (ratio >= self.hit_ratio) & (representatives(window) == np.arange(window.n_components))
        found: list[tuple[float, int]] = []
        while True:
            covers = np.where(able, window.totals(left), 0.0)
            best = np.flatnonzero(covers == covers.max())
            top = int(best[np.argmax(ratio[best])])
            if covers[top] < 2:
                return tuple(suspect(window, column, strength) for strength, column in sorted(found, reverse=True))
            found.append((float(covers[top]), top))
            left[window.rows(top)] = 0.0
