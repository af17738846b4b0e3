"""Flock: a path that touches a broken component fails at one rate, any other path at another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure.blame.equivalence import representatives
from perdure.blame.verdict import Suspect, suspect
from perdure.blame.window import Window


@dataclass(frozen=True, slots=True)
class Flock:
    """Greedy maximum likelihood with two fixed rates.

    Claim: exact and fast where failures have about the same rate everywhere, as silent packet drops have.

    A path in touch with the hypothesis H loses units at `bad`, else at `good`; H grows by the component with the
    largest gain ``sum over its untouched paths of e log(bad/good) + (n - e) log((1 - bad)/(1 - good))`` while that
    is above `prior` nats. Paths are known here; the averaging over unknown ones is left out.

    A step is one sparse product, so a solve costs (culprits + 1) times the entries of the window. Strength is the gain
    in nats when the component was added.

    Do not use it where culprits fail at rates far apart or the background is near `bad`: set both rates for the site
    first.

    Source: V. Harsh et al., "Flock", CoNEXT 2023 (arXiv 2305.03348).

    >>> from perdure.blame.window import window
    >>> paths = window([0, 2, 4, 6], [0, 1, 0, 2, 3, 2], [300, 300, 300], [12, 9, 0])
    >>> [(found.component, f"{found.strength:.0f}") for found in Flock().solve(paths)]
    [(0, '40')]
    """

    good: float = 2e-3
    bad: float = 3e-2
    prior: float = 20.0
    name: str = "flock"

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        """The suspects by their gain when added. Touched paths are set to 0 and speak for no further component."""
        e, n = window.failures, window.units
        told = e * np.log(self.bad / self.good) + (n - e) * np.log((1 - self.bad) / (1 - self.good))
        duplicate = representatives(window) != np.arange(window.n_components)
        found: list[tuple[float, int]] = []
        while True:
            gain = np.where(duplicate, 0.0, window.totals(told))
            top = int(np.argmax(gain))
            if gain[top] <= self.prior:
                return tuple(suspect(window, column, strength) for strength, column in sorted(found, reverse=True))
            found.append((float(gain[top]), top))
            told[window.rows(top)] = 0.0
