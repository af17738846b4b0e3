"""Fits a link of three ranges of sizes to measured all-reduces."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from perdure.errors import PerdureError
from perdure.throughput.size_ranges import RangedLink, SizeRange
from perdure.throughput.speed import Floats

_BOUNDS = np.geomspace(4096, 1 << 26, 29)  # where one range may end and the next begin, bytes
_LEAST_SIZES = 4  # in each range
_ROUNDS = 6
_NEAR = 0.01  # relative errors below this count alike


class CollectivesError(PerdureError, ValueError):
    """Measured collectives that no link can be fitted to."""


def fit_ranges(size: Floats, members: Floats, seconds: Floats) -> RangedLink:
    """The link that measured all-reduces tell, by least absolute relative error; all arrays have (n_measured,).

    Rows of one doubling of size count by the square root of their number: small sizes are few beside large ones.
    Every pair of bounds on a grid is tried. Raises `CollectivesError` where sizes are too few, or a value is no
    positive number.
    """
    columns = [np.asarray(column, float) for column in (size, members, seconds)]
    if len({len(column) for column in columns}) > 1:
        raise CollectivesError("collectives", "their columns differ in length", "Give each its bytes, members, seconds")
    wrong = np.flatnonzero(~np.all([np.isfinite(column) & (column > 0) for column in columns], axis=0))
    if len(wrong):
        raise CollectivesError(f"collectives, row {wrong[0]}", "a value is no positive number", "Leave this row out")
    if len(np.unique(size)) < 3 * _LEAST_SIZES:
        what = f"there are {len(np.unique(size))} sizes"
        raise CollectivesError("collectives", what, f"Measure {3 * _LEAST_SIZES} or more, from 4 KiB to 64 MiB")
    _, octave, count = np.unique(np.floor(np.log2(columns[0])), return_inverse=True, return_counts=True)
    columns.append(1 / np.sqrt(count[octave.ravel()]))
    edges = [0.0, *_BOUNDS.tolist(), np.inf]
    last = len(edges) - 1
    found: dict[tuple[int, int], tuple[float, SizeRange | None]] = {}

    def part(low: int, high: int) -> tuple[float, SizeRange | None]:
        if (low, high) not in found:
            inside = (columns[0] >= edges[low]) & (columns[0] < edges[high])
            found[low, high] = _line(*(column[inside] for column in columns))
        return found[low, high]

    pairs = [(first, second) for first in range(1, last) for second in range(first + 1, last)]
    costs = [part(0, i)[0] + part(i, j)[0] + part(j, last)[0] for i, j in pairs]
    i, j = pairs[int(np.argmin(costs))]
    low, middle, high = part(0, i)[1], part(i, j)[1], part(j, last)[1]
    if low is None or middle is None or high is None:
        raise CollectivesError("collectives", "their sizes leave no three ranges", "Measure sizes from 4 KiB to 64 MiB")
    return RangedLink((edges[i], edges[j]), (low, middle, high))


def _line(size: Floats, members: Floats, seconds: Floats, counts: Floats) -> tuple[float, SizeRange | None]:
    """The sum of relative errors by what each row `counts`, and the best start, hop and rate, none of them negative."""
    if len(np.unique(size)) < _LEAST_SIZES:
        return np.inf, None
    terms = np.column_stack([np.ones_like(size), 2 * (members - 1), 2 * (members - 1) / members * size])
    relative = terms / seconds[:, None]
    scale = relative.max(axis=0)
    relative /= scale
    weight = np.sqrt(counts)
    for _ in range(_ROUNDS):  # least squares again and again, far outliers counting less: least absolute errors
        found = nnls(relative * weight[:, None], weight)[0]
        error = np.abs(relative @ found - 1)
        weight = np.sqrt(counts / np.maximum(error, _NEAR))
    start, hop, per_byte = _apart(found / scale, members)
    return float(counts @ error), SizeRange(start, hop, float(1 / per_byte) if per_byte else np.inf)


def _apart(found: NDArray[np.float64], members: Floats) -> tuple[float, float, float]:
    """Start, hop, and seconds a byte; of one number of members, start and hop are one: all of it is said to be hops."""
    start, hop, per_byte = found.tolist()
    if len(np.unique(members)) == 1:
        return 0.0, hop + start / (2 * (float(members[0]) - 1)), per_byte
    return start, hop, per_byte
