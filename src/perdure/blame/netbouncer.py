"""NetBouncer: success probabilities of components that multiply to those of the paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure.blame.equivalence import representatives
from perdure.blame.verdict import Suspect, suspect
from perdure.blame.window import Floats, Window

_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class NetBouncer:
    """Least squares of products with a pull towards 0 and 1, by coordinate descent.

    Claim: with probes enough on every path, a component's success probability is found to a fraction of a per cent.

    ``min sum_i (y_i - prod_j x_j)^2 + weight * sum_j x_j (1 - x_j)``, ``y_i = 1 - e_i / n_i``; with t_i the product of
    the other components of path i, ``x_j = (2 S1 - weight) / (2 (S2 - weight))``, ``S1 = sum t y``, ``S2 = sum t^2``,
    cut to [0, 1]. Components all of whose paths are clean stay at 1. The paper's check of whole devices is left out:
    devices are components here.

    The second term is 0 at x = 0 and x = 1 and largest between: of two explanations it prefers few bad components to
    many slightly bad ones. A sweep costs the entries of the components with failures; products are kept as sums of
    logarithms. Strength is ``1 - x_j``. The objective is not convex: the start, everything healthy, is part of the
    method.

    Do not use it for VMs or jobs: a path of one unit counts as much as one of 300.

    Source: C. Tan et al., "NetBouncer", NSDI 2019.
    """

    weight: float = 3.0
    threshold: float = 0.01  # blamed where 1 - x_j is above it
    sweeps: int = 20
    name: str = "netbouncer"

    def solve(self, window: Window) -> tuple[Suspect, ...]:
        """The suspects by ``1 - x_j``, at most `sweeps` sweeps; it ends early where no x moves by 1e-5."""
        y = 1 - window.failures / np.maximum(window.units, 1)
        failing = window.totals((window.failures > 0).astype(np.float64)) > 0
        columns = np.flatnonzero(failing & (representatives(window) == np.arange(window.n_components)))
        x, logs = np.ones(window.n_components), np.zeros(window.n_paths)
        for _ in range(self.sweeps):
            before = x.copy()
            for column in columns:
                rows = window.rows(int(column))
                others = logs[rows] - np.log(x[column])
                x[column] = self._best(np.exp(others), y[rows])
                logs[rows] = others + np.log(x[column])
            if np.abs(x - before).max() < 1e-5:
                break
        found = [(float(1 - x[column]), int(column)) for column in columns if 1 - x[column] > self.threshold]
        return tuple(suspect(window, column, strength) for strength, column in sorted(found, reverse=True))

    def _best(self, t: Floats, y: Floats) -> float:
        """The x in [1e-6, 1] of the least objective, all others held; never 0, for its logarithm is kept."""
        first, second = float(t @ y), float(t @ t)
        if second <= self.weight:  # concave: the better end
            return 1.0 if first * 2 > second else _LEAST
        return float(np.clip((2 * first - self.weight) / (2 * (second - self.weight)), _LEAST, 1.0))
