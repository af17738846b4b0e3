"""A window folded for search: failing paths row by row, all others in totals (see `perdure.blame.background`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.blame.window import Window

Rows = NDArray[np.integer[Any]]


class FailingPaths:
    """The failing paths of a window, and totals over all paths.

    Together they are all that a likelihood of `background` needs, whatever is blamed, so that no evaluation touches the
    clean paths.

    Attributes: `rows` (f,) path rows with failures, `n` and `e` (f,) of them, `incidence` (f, n_components) and
    `by_component` the same by columns; `units`, `paths` and `failures` (n_components,) over all used paths; `sizes` and
    `counts` how many used paths have how many units; `pair` (f,) which distinct (n, e) a failing path has, below
    `n_pairs`.
    """

    def __init__(self, window: Window) -> None:
        self.rows = np.flatnonzero(window.failures > 0)
        self.n, self.e = window.units[self.rows], window.failures[self.rows]
        self.incidence = window.incidence[self.rows]
        self.by_component = self.incidence.tocsc()
        self.units = window.totals(window.units)
        self.paths = window.totals((window.units > 0).astype(np.float64))
        self.failures = self.incidence.T @ self.e
        self.sizes, self.counts = np.unique(window.units[window.units > 0], return_counts=True)
        most = self.e.max(initial=0.0) + 1
        pairs, self.pair = np.unique(self.n * most + self.e, return_inverse=True)
        self.n_pairs = len(pairs)

    @property
    def overall(self) -> float:
        """The share of all units that failed."""
        return float(self.e.sum() / (self.sizes @ self.counts))

    def of(self, column: int) -> Rows:
        """The failing paths of a component, ascending, as positions in `rows` (not as rows of the window)."""
        by = self.by_component
        found: Rows = by.indices[by.indptr[column] : by.indptr[column + 1]]
        return found
