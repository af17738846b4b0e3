"""The grid view: failure rates of every pair of two tiers. A row that glows is a row's fault, a column a column's.

Source: Q. Zhang et al., "Deepview", NSDI 2018 (compute by storage).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from perdure.blame.window import Floats, Window
from perdure.errors import InputError

MOST_ROWS, MOST_COLUMNS = 300, 120
_COLUMN_TIERS = ("storage", "store", "user", "spine", "core")  # in this order, where the window has one of them


@dataclass(frozen=True, slots=True)
class Grid:
    """Units and failures by row and column; components as columns of the window they come from.

    A path that crosses several rows counts in each of them, so sums over the grid may be larger than those of the
    window.
    """

    row_tier: str
    column_tier: str
    rows: NDArray[np.intp]  # (n_rows,)
    columns: NDArray[np.intp]  # (n_columns,)
    units: Floats  # (n_rows, n_columns)
    failures: Floats  # (n_rows, n_columns)
    left_out: int = 0  # rows and columns that found no place, those with the fewest failures

    @property
    def rate(self) -> Floats:
        """(n_rows, n_columns) the share of units that failed; NaN where there were none."""
        with np.errstate(invalid="ignore"):
            shares: Floats = np.where(self.units > 0, self.failures / np.maximum(self.units, 1), np.nan)
        return shares


def grid(
    window: Window,
    culprits: Collection[int] = (),
    row_tier: str | None = None,
    column_tier: str | None = None,
    most: tuple[int, int] = (MOST_ROWS, MOST_COLUMNS),
) -> Grid:
    """The grid of two tiers; those not given are chosen. `culprits` (columns of the window) always find a place.

    Columns are storage, users or spines where the window has them, rows the largest other tier of at most 300
    components. Of a tier with more than `most` components those with the most failures are shown, in the order of the
    window.

    Raises `InputError` for a tier that the window has not, and for a window of one tier alone.

    >>> from perdure.blame.window import window
    >>> tiers = ["tor", "spine", "spine"]
    >>> paths = window([0, 2, 4], [0, 1, 0, 2], [10, 10], [0, 4], component_ids=range(3), tiers=tiers)
    >>> grid(paths).rate  # a ToR below two spines
    array([[0. , 0.4]])
    """
    tiers = window.tiers.tolist()
    for wanted in (row_tier, column_tier):
        if wanted is not None and wanted not in tiers:
            known = ", ".join(sorted(set(tiers)))
            raise InputError("grid", f"there is no tier {wanted!r}", f"Use two of: {known}")
    column_tier = column_tier or _columns_of(window, row_tier)
    row_tier = row_tier or _rows_of(window, column_tier)
    rows, over = _shown(window, row_tier, culprits, most[0])
    columns, more = _shown(window, column_tier, culprits, most[1])
    left, right = window.incidence[:, rows], window.incidence[:, columns]
    units, failures = (_crossed(left, right, of) for of in (window.units, window.failures))
    return Grid(row_tier, column_tier, rows, columns, units, failures, over + more)


def _crossed(left: sparse.csr_array, right: sparse.csr_array, of_paths: Floats) -> Floats:
    """(n_rows, n_columns) the sum of a quantity of paths over those that cross both."""
    both: Floats = (left.T @ right.multiply(of_paths[:, None]).tocsr()).toarray()
    return both


def _columns_of(window: Window, row_tier: str | None) -> str:
    """The first of the usual column tiers that the window has; else the smallest."""
    sizes = _sizes(window)
    sizes.pop(row_tier or "", None)
    if not sizes or len(_sizes(window)) < 2:
        raise InputError("grid", "all components are of one tier", "Give tiers with --components")
    return next((tier for tier in _COLUMN_TIERS if tier in sizes), min(sizes, key=lambda tier: (sizes[tier], tier)))


def _rows_of(window: Window, column_tier: str) -> str:
    """The largest of the others that a picture can hold; else the smallest."""
    sizes = {tier: size for tier, size in _sizes(window).items() if tier != column_tier}
    if not sizes:
        raise InputError("grid", "all components are of one tier", "Give tiers with --components")
    fitting = [tier for tier, size in sizes.items() if size <= MOST_ROWS]
    return max(fitting, key=lambda tier: (sizes[tier], tier)) if fitting else min(sizes, key=lambda tier: sizes[tier])


def _sizes(window: Window) -> dict[str, int]:
    """How many components each tier has."""
    names, counts = np.unique(window.tiers, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _shown(window: Window, tier: str, culprits: Collection[int], most: int) -> tuple[NDArray[np.intp], int]:
    """The components of a tier in their order, at most this many: culprits first, then those with failures."""
    members = np.flatnonzero(window.tiers == tier)
    if len(members) <= most:
        return members, 0
    failures = window.totals(window.failures)[members]
    first: Sequence[int] = np.lexsort((members, -failures, ~np.isin(members, list(culprits)))).tolist()
    return np.sort(members[first[:most]]), len(members) - most
