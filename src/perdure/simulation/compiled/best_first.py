"""Jobs that are ranked for one pass alone, compiled: a heap that is built at once, of which only the top is taken.

Where the keys of all change from pass to pass, an order that is kept would have to be made again each time. A pass
takes few of those it ranks, so it does not sort them. Which of equal keys comes out first is settled by the label.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records


def nobody_ranked(n: int) -> Records:
    """Room for `n` jobs, ranked by ``(key, label)``, the least first; labels differ."""
    return records(n, key=np.float64, label=LONG, row=SHORT)


@kernel
def rank(ranked, many):  # type: ignore[no-untyped-def]
    """Make a heap of the first `many`, in any order until now. ``O(many)``."""
    for i in range((many >> 1) - 1, -1, -1):
        _sink(ranked, many, i)


@kernel
def take_best(ranked, many):  # type: ignore[no-untyped-def]
    """The row of the first of `many` ranked jobs, at least one; afterwards the first ``many - 1`` are a heap."""
    best, last = np.int64(ranked[0].row), many - 1
    ranked[0].key = ranked[last].key
    ranked[0].label = ranked[last].label
    ranked[0].row = ranked[last].row
    _sink(ranked, last, 0)
    return best


@kernel
def _sink(ranked, many, i):  # type: ignore[no-untyped-def]
    """Move entry i down to where it belongs; what is below it is a heap already."""
    key, label, row = ranked[i].key, ranked[i].label, np.int64(ranked[i].row)
    while 2 * i + 1 < many:
        child = 2 * i + 1
        if child + 1 < many:
            left, right = ranked[child], ranked[child + 1]
            child += right.key < left.key or (right.key == left.key and right.label < left.label)
        below = ranked[child]
        if key < below.key or (key == below.key and label < below.label):
            break
        ranked[i].key = below.key
        ranked[i].label = below.label
        ranked[i].row = below.row
        i = child
    ranked[i].key = key
    ranked[i].label = label
    ranked[i].row = row
