"""A heap of job rows by the tick at which something happens to them.

The binary heap of textbooks, with the place of each row kept next to it, so that a row in the middle can leave in the
logarithm of the heap's size: a job that is preempted no longer ends when it was going to. Ties go to the lower row,
which is the order in which the plain loop ends jobs of one tick: the order of (tick, row) is total, so what comes out
does not depend on what went in when.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records

NEVER = np.int64(2**62)


class Ticks(NamedTuple):
    """The earliest tick first, of equal ones the lower row. A row is there once at most, and may leave at any time.

    Kept true: entry i comes before entries 2i and 2i + 1, and ``place[row]`` is where the entry of a row is.
    """

    entry: Records  # tick and row, a binary heap from 1 on; the tick of entry 0 is how many there are
    place: NDArray[np.int32]  # of each row; 0 for one that is not there


def empty_ticks(rows: int, most: int) -> Ticks:
    """A heap for at most `most` of the first `rows` rows, which none of the kernels below may exceed.

    >>> heap = empty_ticks(rows=3, most=2)
    >>> len(heap.entry), heap.place.tolist()  # entry 0 counts
    (3, [0, 0, 0])
    """
    return Ticks(records(most + 1, tick=LONG, row=SHORT), np.zeros(rows, np.int32))


@kernel
def holds(ticks, row):  # type: ignore[no-untyped-def]
    """Whether a row is there."""
    return ticks.place[row] > 0


@kernel
def first_tick(ticks):  # type: ignore[no-untyped-def]
    """The tick of the first row; `NEVER` if there is none, which is later than any tick of a replay."""
    return ticks.entry[1].tick if ticks.entry[0].tick else NEVER


@kernel
def push(ticks, row, tick):  # type: ignore[no-untyped-def]
    """Put a row in that is not there, at a tick that may be in the past: it is then due at once. ``O(log n)``."""
    ticks.entry[0].tick += 1
    _up(ticks, ticks.entry[0].tick, row, tick)


@kernel
def pop(ticks):  # type: ignore[no-untyped-def]
    """Take the first row out of a heap that is not empty: the earliest tick, of equal ones the lower row."""
    row = np.int64(ticks.entry[1].row)
    discard(ticks, row)
    return row


@kernel
def discard(ticks, row):  # type: ignore[no-untyped-def]
    """Take a row out, if it is there; else nothing happens, as for a job that has no limit ahead of it.

    The last entry moves to the free place, up or down from there: it may come from another branch, so it need not be
    later than what is above that place.
    """
    i = np.int64(ticks.place[row])
    if i == 0:
        return
    ticks.place[row] = 0
    size = ticks.entry[0].tick
    last, tick = np.int64(ticks.entry[size].row), ticks.entry[size].tick
    ticks.entry[0].tick = size - 1
    if last != row:
        _down(ticks, _up(ticks, i, last, tick), last, tick)


@kernel
def _set(ticks, i, row, tick):  # type: ignore[no-untyped-def]
    """Write a row into a place. The row keeps the place, so that both always agree."""
    ticks.entry[i].tick = tick
    ticks.entry[i].row = row
    ticks.place[row] = i


@kernel
def _up(ticks, i, row, tick):  # type: ignore[no-untyped-def]
    """Put a row at place i, or as far above it as it belongs; where it went. The entries above i are a heap."""
    while i > 1:
        above = ticks.entry[i >> 1]
        if tick > above.tick or (tick == above.tick and row > above.row):
            break
        _set(ticks, i, np.int64(above.row), above.tick)
        i >>= 1
    _set(ticks, i, row, tick)
    return i


@kernel
def _down(ticks, i, row, tick):  # type: ignore[no-untyped-def]
    """Put a row at place i, or as far below it as it belongs. The entries below i are a heap already."""
    size = ticks.entry[0].tick
    while 2 * i <= size:
        child = 2 * i
        if child < size:
            left, right = ticks.entry[child], ticks.entry[child + 1]
            child += right.tick < left.tick or (right.tick == left.tick and right.row < left.row)
        below = ticks.entry[child]
        if tick < below.tick or (tick == below.tick and row < below.row):
            break
        _set(ticks, i, np.int64(below.row), below.tick)
        i = child
    _set(ticks, i, row, tick)
