"""Counts, sums and medians of rows that share a key, and how to look them up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows by their key. Build it with `grouped`."""

    keys: NDArray[np.int64]  # (n_groups,) rising
    member: NDArray[np.intp]  # (n_rows,) the group of each row

    def count(self) -> NDArray[np.float64]:
        """(n_groups,) rows of each."""
        return np.bincount(self.member, minlength=len(self.keys)).astype(np.float64)

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_groups,) sum of the values of each."""
        return np.bincount(self.member, values, minlength=len(self.keys)).astype(np.float64)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_groups,) mean of the values of each."""
        return self.total(values) / np.maximum(self.count(), 1)

    def median(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_groups,) median of the values of each; none may be NaN."""
        if not len(values):
            return np.zeros(0)
        order = np.lexsort((values, self.member))
        first = np.r_[0, np.cumsum(np.bincount(self.member, minlength=len(self.keys)))]
        lower, upper = (first[:-1] + first[1:] - 1) // 2, (first[:-1] + first[1:]) // 2
        ranked = values[order]
        middle: NDArray[np.float64] = (ranked[lower] + ranked[upper]) / 2
        return middle

    def look_up(
        self, asked: NDArray[np.int64], found: NDArray[np.float64], otherwise: float = np.nan
    ) -> NDArray[np.float64]:
        """(n_asked,) the value of the group with each asked key; `otherwise` where no row has that key."""
        if not len(self.keys):
            return np.full(len(asked), otherwise)
        place = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        return np.where(self.keys[place] == asked, found[place], otherwise)


def grouped(keys: NDArray[np.int64]) -> Groups:
    """The rows by their key."""
    unique, member = np.unique(keys, return_inverse=True)
    return Groups(unique, member)


def codes(*columns: NDArray[np.generic]) -> NDArray[np.int64]:
    """(n,) one number for each different row of the columns; NaN equals NaN."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * max(1, len(values)) + place, return_inverse=True)[1].astype(np.int64)
    return code
