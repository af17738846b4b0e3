"""Two priority queues over job rows: an indexed binary heap, and skew heaps that share their links."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import LONG, SHORT, SHORT_NONE, Records, kernel, records


def empty_heap(n: int) -> Records:
    """A binary heap of rows below `n` by tick, then row. A row is in it at most once, and may be taken from anywhere.

    `tick` and `place` (in the heap; -1 outside) are of each row, `row` of each place; the last record's `tick` is
    the heap's size.
    """
    return records(n + 1, tick=LONG, row=SHORT, place=SHORT_NONE)


@kernel
def _size(heap):  # type: ignore[no-untyped-def]
    return heap[len(heap) - 1].tick


@kernel
def holds(heap, row):  # type: ignore[no-untyped-def]
    """Whether a row is there."""
    return heap[row].place >= 0


@kernel
def push(heap, row, tick):  # type: ignore[no-untyped-def]
    """Put a row in that is not there."""
    heap[row].tick = tick
    heap[len(heap) - 1].tick += 1
    _up(heap, _size(heap) - 1, row)


@kernel
def discard(heap, row):  # type: ignore[no-untyped-def]
    """Take a row out, if it is there."""
    i = np.int64(heap[row].place)
    if i < 0:
        return
    heap[row].place = -1
    heap[len(heap) - 1].tick -= 1
    last = np.int64(heap[_size(heap)].row)
    if last != row:
        _up(heap, i, last)
        _down(heap, np.int64(heap[last].place), last)


@kernel
def pop(heap):  # type: ignore[no-untyped-def]
    """Take the first row out of a heap that is not empty."""
    row = np.int64(heap[0].row)
    discard(heap, row)
    return row


@kernel
def first_tick(heap, none):  # type: ignore[no-untyped-def]
    """The tick of the first row, or `none`."""
    return heap[heap[0].row].tick if _size(heap) else none


@kernel
def _before(heap, a, b):  # type: ignore[no-untyped-def]
    return heap[a].tick < heap[b].tick or (heap[a].tick == heap[b].tick and a < b)


@kernel
def _up(heap, i, row):  # type: ignore[no-untyped-def]
    while i > 0:
        above = (i - 1) >> 1
        other = np.int64(heap[above].row)
        if not _before(heap, row, other):
            break
        heap[i].row = other
        heap[other].place = i
        i = above
    heap[i].row = row
    heap[row].place = i


@kernel
def _down(heap, i, row):  # type: ignore[no-untyped-def]
    size = _size(heap)
    while 2 * i + 1 < size:
        below = 2 * i + 1
        if below + 1 < size and _before(heap, np.int64(heap[below + 1].row), np.int64(heap[below].row)):
            below += 1
        other = np.int64(heap[below].row)
        if not _before(heap, other, row):
            break
        heap[i].row = other
        heap[other].place = i
        i = below
    heap[i].row = row
    heap[row].place = i


def empty_skew(n: int, then: NDArray[np.int64]) -> Records:
    """Skew heaps of rows below `n` by ``(key, then, label)``; each heap is named by its root, -1 when empty.

    Source: D. Sleator and R. Tarjan, "Self-adjusting heaps", SIAM J. Computing 15, 1986.
    """
    skew = records(
        n, key=(np.float64, 0), then=LONG, label=LONG, left=SHORT_NONE, right=SHORT_NONE, above=SHORT_NONE
    )
    skew["then"] = then
    return skew


@kernel
def precedes(skew, a, b):  # type: ignore[no-untyped-def]
    """Whether row a comes before row b."""
    if skew[a].key != skew[b].key:
        return skew[a].key < skew[b].key
    if skew[a].then != skew[b].then:
        return skew[a].then < skew[b].then
    return skew[a].label < skew[b].label


@kernel
def meld(skew, a, b):  # type: ignore[no-untyped-def]
    """The root of the heap that both heaps become."""
    if a < 0:
        return b
    if b < 0:
        return a
    if precedes(skew, b, a):
        a, b = b, a
    root = a
    while True:
        right = np.int64(skew[a].right)
        skew[a].right = skew[a].left
        if right < 0:
            skew[a].left = b
            skew[b].above = a
            return root
        if precedes(skew, b, right):
            right, b = b, right
        skew[a].left = right
        skew[right].above = a
        a = right


@kernel
def add(skew, root, row):  # type: ignore[no-untyped-def]
    """The root after a row was put in."""
    skew[row].left = -1
    skew[row].right = -1
    skew[row].above = -1
    root = meld(skew, root, row)
    skew[root].above = -1
    return root


@kernel
def remove(skew, root, row):  # type: ignore[no-untyped-def]
    """The root after a row was taken out."""
    joined = meld(skew, np.int64(skew[row].left), np.int64(skew[row].right))
    above = np.int64(skew[row].above)
    if joined >= 0:
        skew[joined].above = above
    if above < 0:
        return joined
    if skew[above].left == row:
        skew[above].left = joined
    else:
        skew[above].right = joined
    return root
