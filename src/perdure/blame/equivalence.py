"""Equivalence classes of components: those that cross the same paths, which no observation can tell apart.

A solver searches over one component of each class, the one with the least column, and a verdict names the whole class
(`Suspect.equivalent`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.blame.window import Window


def alike(window: Window, column: int) -> tuple[int, ...]:
    """The columns with the same paths as `column`, itself among them, ascending. Exact.

    Only components of the first path can be equal to it, and of those only the ones with as many paths.

    >>> from perdure.blame.window import window
    >>> alike(window([0, 2, 5], [0, 1, 0, 1, 2], [9, 9], [0, 0]), 1)
    (0, 1)
    """
    rows = window.rows(column)
    starts = window.by_component.indptr
    if not len(rows):
        return (column,)
    first = window.incidence.indices[window.incidence.indptr[rows[0]] : window.incidence.indptr[rows[0] + 1]]
    same_size = first[starts[first + 1] - starts[first] == len(rows)]
    return tuple(sorted(int(c) for c in same_size if np.array_equal(window.rows(int(c)), rows)))


def representatives(window: Window) -> NDArray[np.intp]:
    """(n_components,) the least column with the same paths; of one without paths, itself.

    Linear in the entries of the window: sets of paths are compared by the sum of a mixed 64-bit number of each path,
    modulo 2^64. Two different sets that meet there would be searched as one; were the numbers random, the chance would
    be ``n_components^2 / 2^65``, 3e-10 for 100,000 components.

    >>> from perdure.blame.window import window
    >>> representatives(window([0, 2, 5], [0, 1, 0, 1, 2], [9, 9], [0, 0])).tolist()
    [0, 0, 2]
    """
    starts, rows = window.by_component.indptr, window.by_component.indices
    mark = (np.arange(1, window.n_paths + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(0x5851F42D)
    mark *= mark | np.uint64(1)  # wraps: a sum of these names a set of paths
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mark[rows])])
    of_column = sums[starts[1:]] - sums[starts[:-1]]
    paths = np.diff(starts).astype(np.uint64)
    key = np.where(paths > 0, of_column * np.uint64(0x9E3779B97F4A7C15) + paths, np.arange(len(paths), dtype=np.uint64))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    least: NDArray[np.intp] = first[which]
    return least
