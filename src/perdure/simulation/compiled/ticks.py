"""A heap of job rows by the tick at which something happens to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records

NEVER = np.int64(2**62)


class Ticks(NamedTuple):
    """The earliest tick first, of equal ones the lower row. A row is there once at most, and may leave at any time."""

    entry: Records  # tick and row, a binary heap from 1 on; the tick of entry 0 is how many there are
    place: NDArray[np.int32]  # of each row; 0 for one that is not there


def empty_ticks(rows: int, most: int) -> Ticks:
    """A heap for at most `most` of the first `rows` rows."""
    return Ticks(records(most + 1, tick=LONG, row=SHORT), np.zeros(rows, np.int32))


@kernel
def holds(ticks, row):  # type: ignore[no-untyped-def]
    """Whether a row is there."""
    return ticks.place[row] > 0


@kernel
def first_tick(ticks):  # type: ignore[no-untyped-def]
    """The tick of the first row; `NEVER` if there is none."""
    return ticks.entry[1].tick if ticks.entry[0].tick else NEVER


@kernel
def push(ticks, row, tick):  # type: ignore[no-untyped-def]
    """Put a row in that is not there."""
    ticks.entry[0].tick += 1
    _up(ticks, ticks.entry[0].tick, row, tick)


@kernel
def pop(ticks):  # type: ignore[no-untyped-def]
    """Take the first row out of a heap that is not empty."""
    row = np.int64(ticks.entry[1].row)
    discard(ticks, row)
    return row


@kernel
def discard(ticks, row):  # type: ignore[no-untyped-def]
    """Take a row out, if it is there."""
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
    ticks.entry[i].tick = tick
    ticks.entry[i].row = row
    ticks.place[row] = i


@kernel
def _up(ticks, i, row, tick):  # type: ignore[no-untyped-def]
    """Put a row at place i, or as far above it as it belongs; where it went."""
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
