"""The running jobs of a preemptive policy, compiled: which is the last in precedence, and so the first to yield.

They are in a heap, the last one on top. Where keys of jobs of several sizes change at several speeds (service left:
GPUs times time), each size is a class with a heap of its own, in which the order stands still, for all its keys fall at
one speed; the last of all is then the last of the tops at this instant.

A class is a stretch of ``levels.running``, from `begin` on, `many` jobs long: a binary heap from 0, as in textbooks.
``levels.job[row].place`` is a job's position in it, -1 for one that is not there.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.levels import REMAINING_SERVICE, key_now
from perdure.simulation.compiled.skew_heap import precedes


@kernel
def enter(levels, row):  # type: ignore[no-untyped-def]
    """Put a job among the running ones, its key and label being set; they stand until it is withdrawn or `resort`ed."""
    one = levels.classes[_class_of(levels, row)]
    _up(levels, one.begin, one.many, row)
    one.many += 1


@kernel
def withdraw(levels, row):  # type: ignore[no-untyped-def]
    """Take a job out from among the running ones; its key and label are still those that it came with.

    It runs on: whoever withdraws it puts it back (`enter`), preempts it, or ends its attempt.
    """
    one = levels.classes[_class_of(levels, row)]
    one.many -= 1
    last, i = levels.running[one.begin + one.many].row, np.int64(levels.job[row].place)
    if last != row:
        _down(levels, one.begin, one.many, _up(levels, one.begin, i, last), last)
    levels.job[row].place = -1


@kernel
def resort(levels, row, key):  # type: ignore[no-untyped-def]
    """Give one of the running jobs another key, and move it up or down to where it belongs."""
    if key != levels.order[row].key:
        levels.order[row].key = key
        one = levels.classes[_class_of(levels, row)]
        _down(levels, one.begin, one.many, _up(levels, one.begin, np.int64(levels.job[row].place), row), row)


@kernel
def is_out(levels, row):  # type: ignore[no-untyped-def]
    """Whether a job has been withdrawn: it does not run, or is in the margin of a pass."""
    return levels.job[row].place < 0


@kernel
def last_running(state, levels):  # type: ignore[no-untyped-def]
    """The last in precedence, first to yield; -1 if nobody runs. Of equal ones it is the one with the highest label.

    One look a class: as many as there are sizes of gangs under SRSF, else one.
    """
    last = np.int64(-1)
    for i in range(len(levels.classes)):
        one = levels.classes[i]
        if one.many:
            row = levels.running[one.begin].row
            if last < 0 or _is_after(state, levels, row, last):
                last = row
    return last


@kernel
def _class_of(levels, row):  # type: ignore[no-untyped-def]
    """The heap that a job is in: that of its size where keys change at the speed of its GPUs, else the only one."""
    return np.int64(levels.job[row].size_of) if levels.rules.by == REMAINING_SERVICE else np.int64(0)


@kernel
def _is_after(state, levels, a, b):  # type: ignore[no-untyped-def]
    """Whether running job a of one class comes after running job b of another, by their keys at this instant."""
    key_a, key_b = key_now(state, levels, a), key_now(state, levels, b)
    return key_a > key_b or (key_a == key_b and levels.order[a].label > levels.order[b].label)


@kernel
def _set(levels, begin, i, row):  # type: ignore[no-untyped-def]
    """Write a job into a place of its heap; the job keeps the place, so that both always agree."""
    levels.running[begin + i].row = row
    levels.job[row].place = i


@kernel
def _up(levels, begin, i, row):  # type: ignore[no-untyped-def]
    """Put a job at place i of its heap, or as far above it as it belongs; where it went.

    The last in precedence is on top.
    """
    while i > 0:
        above = levels.running[begin + ((i - 1) >> 1)].row
        if precedes(levels.order, row, above):
            break
        _set(levels, begin, i, above)
        i = (i - 1) >> 1
    _set(levels, begin, i, row)
    return i


@kernel
def _down(levels, begin, many, i, row):  # type: ignore[no-untyped-def]
    """Put a job at place i, or as far below it as it belongs. What is below i is a heap already."""
    while 2 * i + 1 < many:
        child = 2 * i + 1
        if child + 1 < many:
            child += precedes(levels.order, levels.running[begin + child].row, levels.running[begin + child + 1].row)
        below = levels.running[begin + child].row
        if precedes(levels.order, below, row):
            break
        _set(levels, begin, i, below)
        i = child
    _set(levels, begin, i, row)
