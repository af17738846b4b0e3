"""Lines of waiting jobs, compiled: one for each size of gang, searched for the first job that is short enough.

Backfilling asks again and again for the next job, in the order of arrival, that is no longer than the gap before a
reservation. A line is a row of slots, filled in the order in which jobs come. Above the slots is a tournament tree:
each node knows the shortest job below it, so that the answer takes the logarithm of the line. A full line is compacted,
which frees at least half of it, for a line has twice as many slots as jobs can ever wait in it: so n arrivals pay for a
compaction of n slots, a constant number of slots an arrival.

Lengths are in ticks, as known beforehand: the walltime, or else the true running time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records

NOBODY = np.int64(2**62)  # in the place of a length
ANY = NOBODY - 1  # longer than all


class Lines(NamedTuple):
    """Waiting jobs by size of gang.

    Kept true: slot i of a line holds the job ``row[begin + i]``, and its leaf the job's length, or `NOBODY`; each inner
    node of a tournament is the least of its two children.
    """

    sizes: Records  # ascending, see `empty_lines`
    job: Records  # of each job: its size, and its slot
    least: NDArray[np.int64]  # nodes of all tournaments: the root of one is 1, slot i is node `slots` + i
    row: NDArray[np.int32]  # in each slot


def empty_lines(gpus: NDArray[np.int64]) -> Lines:
    """Lines for jobs of these sizes, without any job in them.

    All trees lie one after another in the same array, each as in a binary heap: the children of node i are 2i and 2i +
    1.

    >>> lines = empty_lines(np.array([8, 1, 8, 8]))  # one job of one GPU, three of eight
    >>> lines.sizes["gpus"].tolist(), lines.sizes["slots"].tolist(), lines.sizes["begin"].tolist()
    ([1, 8], [2, 8], [0, 2])
    """
    widths, size_of, counts = np.unique(gpus, return_inverse=True, return_counts=True)
    job = records(len(gpus), size_of=SHORT, slot=SHORT)
    job["size_of"] = size_of
    sizes = records(
        len(widths),
        gpus=LONG,
        slots=LONG,  # a power of two
        begin=LONG,  # of its slots in `row`, and half of that of its tournament in `least`
        used=LONG,  # slots
        waiting=LONG,  # jobs
        candidate=LONG,  # where a pass stands: a slot, -1 for none
    )
    sizes["gpus"] = widths
    sizes["slots"] = 2 ** np.ceil(np.log2(2 * counts)).astype(np.int64) if len(gpus) else 0
    sizes["begin"] = np.cumsum(sizes["slots"]) - sizes["slots"]
    slots = int(sizes["slots"].sum())
    return Lines(sizes, job, np.full(2 * slots, NOBODY), np.zeros(slots, np.int32))


@kernel
def stand(lines, row, length):  # type: ignore[no-untyped-def]
    """Queue a job of this length behind all others of its size, also where it waited before: it has come again.

    ``O(log n)``, and the whole line where it is full.
    """
    size = lines.sizes[lines.job[row].size_of]
    if size.used == size.slots:
        _move_together(lines, size)
    size.waiting += 1
    _put(lines, size, size.used, row, length)
    size.used += 1


@kernel
def leave(lines, row):  # type: ignore[no-untyped-def]
    """Remove a job from its queue. Its slot stays empty until the queue is compacted, or empties."""
    size = lines.sizes[lines.job[row].size_of]
    size.waiting -= 1
    _set(lines, size, np.int64(lines.job[row].slot), NOBODY)
    if not size.waiting:
        size.used = 0


@kernel
def first_in(lines, size, begin, longest):  # type: ignore[no-untyped-def]
    """The first slot from `begin` on whose job is no longer than `longest`; -1 for none. ``O(log n)``.

    Goes up from the slot until the shortest of a subtree to the right is short enough, then down to its first slot.
    From a right child the next subtree to the right is that of an ancestor, hence the shifts; shifted to 0 there is
    none left. An empty slot is longer than all.
    """
    if begin >= size.used:
        return -1
    root, node = 2 * size.begin, size.slots + begin
    while lines.least[root + node] > longest:
        while node & 1:
            node >>= 1
        if not node:
            return -1
        node += 1
    while node < size.slots:
        node *= 2
        node += lines.least[root + node] > longest
    return node - size.slots


@kernel
def row_in(lines, size, slot):  # type: ignore[no-untyped-def]
    """The job in a slot, which holds one."""
    return np.int64(lines.row[size.begin + slot])


@kernel
def length_in(lines, size, slot):  # type: ignore[no-untyped-def]
    """How long the job in a slot is, in ticks; `NOBODY` for an empty slot."""
    return lines.least[2 * size.begin + size.slots + slot]


@kernel
def narrowest(lines):  # type: ignore[no-untyped-def]
    """GPUs of the narrowest waiting job; more than there are if nobody waits. Fewer than these help nobody."""
    for i in range(len(lines.sizes)):
        if lines.sizes[i].waiting:
            return lines.sizes[i].gpus
    return NOBODY


@kernel
def _put(lines, size, slot, row, length):  # type: ignore[no-untyped-def]
    """Write a job into an empty slot; the job keeps the slot, so that both always agree."""
    lines.row[size.begin + slot] = row
    lines.job[row].slot = slot
    _set(lines, size, slot, length)


@kernel
def _set(lines, size, slot, length):  # type: ignore[no-untyped-def]
    """Set a slot's length, and the minimum in the nodes above it, as far up as that changes anything."""
    root, node = 2 * size.begin, size.slots + slot
    lines.least[root + node] = length
    node >>= 1
    while node:
        least = min(lines.least[root + 2 * node], lines.least[root + 2 * node + 1])
        if lines.least[root + node] == least:
            break
        lines.least[root + node] = least
        node >>= 1


@kernel
def _move_together(lines, size):  # type: ignore[no-untyped-def]
    """Close the gaps of a line. The order stays; no pass may hold a slot (`candidate`) meanwhile."""
    kept = 0
    for slot in range(size.used):
        length = length_in(lines, size, slot)
        if length < NOBODY:
            _set(lines, size, slot, NOBODY)
            _put(lines, size, kept, row_in(lines, size, slot), length)
            kept += 1
    size.used = kept
