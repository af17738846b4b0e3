"""Skew heaps that share their links: many queues of jobs, each job in at most one.

A pass needs the first of each queue, and moves jobs between queues whose sizes nobody knows beforehand. So a heap is
nothing but links between rows, in one array for all heaps. Adding and removing take the logarithm of the heap's size
on average over many operations (one alone may take all of it); a heap keeps no balance and needs no room of its own.

The order is total: labels differ, so that what comes out first does not depend on the shape of the heap.

Source: D. Sleator and R. Tarjan, "Self-adjusting heaps", SIAM J. Computing 15, 1986.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records


def empty_skew(n: int) -> Records:
    """Skew heaps of rows below `n` by ``(key, then, label)``; each is named by its root, -1 where it is empty.

    A row's key, `then` and label are as long as it is in a heap. To change them, take it out first.

    Kept true for a row in a heap: it precedes its children `left` and `right` (-1: none), and is `above` of both. What
    the links of other rows say means nothing.
    """
    return records(n, key=LONG, label=LONG, then=SHORT, left=SHORT, right=SHORT, above=SHORT)


@kernel
def precedes(skew, a, b):  # type: ignore[no-untyped-def]
    """Whether row a comes before row b: by key, then by `then`, then by label; the least first."""
    if skew[a].key != skew[b].key:
        return skew[a].key < skew[b].key
    if skew[a].then != skew[b].then:
        return skew[a].then < skew[b].then
    return skew[a].label < skew[b].label


@kernel
def add(skew, root, row):  # type: ignore[no-untyped-def]
    """The root after a row was put in that is in no heap; `root` is -1 for an empty heap."""
    skew[row].left = -1
    skew[row].right = -1
    root = _meld(skew, root, row)
    skew[root].above = -1
    return root


@kernel
def remove(skew, root, row):  # type: ignore[no-untyped-def]
    """The root after a row was taken out, wherever in the heap it is: its two subtrees, melded, take its place.

    The row's own links are left as they were. Right, because all that was below the row comes after what is above it.
    """
    joined = _meld(skew, np.int64(skew[row].left), np.int64(skew[row].right))
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


@kernel
def _meld(skew, a, b):  # type: ignore[no-untyped-def]
    """The root of the heap that both heaps become; one of them may be empty.

    Goes down the right edges of both and swaps the children of each row on the way: the long right edge that this takes
    time for is a left edge afterwards, which is why it is fast on average. The link `above` of the root is left to the
    caller.
    """
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
