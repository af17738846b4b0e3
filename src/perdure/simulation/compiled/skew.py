"""Skew heaps that share their links: many queues of jobs, each job in at most one.

Source: D. Sleator and R. Tarjan, "Self-adjusting heaps", SIAM J. Computing 15, 1986.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records


def empty_skew(n: int) -> Records:
    """Skew heaps of rows below `n` by ``(key, then, label)``; each is named by its root, -1 where it is empty."""
    return records(n, key=LONG, label=LONG, then=SHORT, left=SHORT, right=SHORT, above=SHORT)


@kernel
def precedes(skew, a, b):  # type: ignore[no-untyped-def]
    """Whether row a comes before row b."""
    if skew[a].key != skew[b].key:
        return skew[a].key < skew[b].key
    if skew[a].then != skew[b].then:
        return skew[a].then < skew[b].then
    return skew[a].label < skew[b].label


@kernel
def add(skew, root, row):  # type: ignore[no-untyped-def]
    """The root after a row was put in."""
    skew[row].left = -1
    skew[row].right = -1
    root = _meld(skew, root, row)
    skew[root].above = -1
    return root


@kernel
def remove(skew, root, row):  # type: ignore[no-untyped-def]
    """The root after a row was taken out."""
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
