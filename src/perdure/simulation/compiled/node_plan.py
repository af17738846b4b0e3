"""What is free on each node, stretch by stretch, in one backfill cycle of a compiled live queue."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.node_room import Longs, choose, gpus_each

WINDOWS = 64  # of ends that are taken together: each reaches twice as far as the one before


class NodePlan(NamedTuple):
    """What is free on each node besides running jobs and reservations, stretch by stretch, in one cycle.

    Stretch i begins at ``tick[i]``; its counts are ``free[slot[i]]``, of which ``widest[slot[i]]`` is the largest. A
    node that is reserved has nothing free.
    """

    tick: Longs
    slot: Longs
    free: NDArray[np.int32]  # (n_slots, n_nodes)
    widest: NDArray[np.int32]
    many: Longs  # one number


def plan_of(ends: int, tests: int, nodes: int) -> NodePlan:
    """An empty plan: as long as so many ends of running jobs, or windows of them, and `tests` reservations make it."""
    stretches = ends + 3 * tests + 8
    return NodePlan(
        np.zeros(stretches, np.int64),
        np.zeros(stretches, np.int64),
        np.zeros((stretches, nodes), np.int32),
        np.zeros(stretches, np.int32),
        np.zeros(1, np.int64),
    )


@kernel
def plan_from(room, plan, now, window):  # type: ignore[no-untyped-def]
    """Begin with what running jobs leave free; ends within a window count as its last one (`taken_together`)."""
    plan.many[0] = 1
    plan.tick[0] = now
    plan.slot[0] = 0
    for node in range(len(room.size)):
        plan.free[0, node] = room.free[node]
    _note_widest(plan, 0)
    many = room.tally[0].ends
    first = max(now + 1, room.end[0]) if many else now
    base = first - first % window + window if window else first
    i = np.int64(0)
    while i < many:
        j, tick = i + 1, max(now + 1, room.end[i])
        while j < many and _are_together(max(now + 1, room.end[j]), tick, base, window):
            j += 1
        stretch = _cut(plan, max(now + 1, room.end[j - 1]))
        slot = plan.slot[stretch]
        for k in range(i, j):
            row = room.ends[k]
            for share in range(room.first[row], room.first[row] + room.held[row]):
                plan.free[slot, room.node[share]] += room.gpus[share]
        _note_widest(plan, slot)
        i = j


@kernel
def _are_together(end, other, base, window):  # type: ignore[no-untyped-def]
    """Whether two ends lie in one window."""
    if not window:
        return end == other
    return _window_of(end, base, window) == _window_of(other, base, window)


@kernel
def _window_of(end, base, window):  # type: ignore[no-untyped-def]
    """The number of the window in which an end lies; each reaches twice as far as the one before."""
    steps, number = max(0, -(-(end - base) // window) - 1), 0
    while steps:
        steps >>= 1
        number += 1
    return number


@kernel
def _note_widest(plan, slot):  # type: ignore[no-untyped-def]
    widest = plan.free[slot, 0]
    for node in range(1, plan.free.shape[1]):
        widest = max(widest, plan.free[slot, node])
    plan.widest[slot] = widest


@kernel
def _cut(plan, tick):  # type: ignore[no-untyped-def]
    """Let a stretch begin at the tick, which is not before the first one; where it stands."""
    low, high = np.int64(0), plan.many[0]
    while low < high:
        middle = (low + high) >> 1
        if plan.tick[middle] < tick:
            low = middle + 1
        else:
            high = middle
    many = plan.many[0]
    if low < many and plan.tick[low] == tick:
        return low
    i = many
    while i > low:
        plan.tick[i] = plan.tick[i - 1]
        plan.slot[i] = plan.slot[i - 1]
        i -= 1
    plan.tick[low] = tick
    plan.slot[low] = many  # slots are used in the order in which stretches are made
    before = plan.slot[low - 1]
    for node in range(plan.free.shape[1]):
        plan.free[many, node] = plan.free[before, node]
    plan.widest[many] = plan.widest[before]
    plan.many[0] += 1
    return low


@kernel
def earliest(room, plan, row, partition, gpus, length):  # type: ignore[no-untyped-def]
    """The first tick from which the job finds its nodes for so long, which `chosen` has then; `NEVER` if there is none.

    Looks at each stretch from its own nodes on, and leaves it as soon as too few of them stay free.
    """
    each, wanted, many = gpus_each(room, row, gpus), room.wanted[row], plan.many[0]
    for i in range(many):
        if plan.widest[plan.slot[i]] < each:
            continue
        for node in range(len(room.size)):
            room.least[node] = room.size[node]
        j = np.int64(i)
        fits = True
        while fits and j < many and (j == i or plan.tick[j] < plan.tick[i] + length):
            slot, found = plan.slot[j], 0
            for node in range(len(room.size)):
                room.least[node] = min(room.least[node], plan.free[slot, node])
                if room.least[node] >= each and room.mine[partition, node]:
                    found += 1
            fits = found >= wanted
            j += 1
        if fits and choose(room, row, partition, gpus, room.least):
            return plan.tick[i]
    return NEVER


@kernel
def run(room, plan, row, end):  # type: ignore[no-untyped-def]
    """The job runs, until then as far as is known."""
    for i in range(_cut(plan, end)):
        slot = plan.slot[i]
        for share in range(room.first[row], room.first[row] + room.held[row]):
            plan.free[slot, room.node[share]] -= room.gpus[share]
        _note_widest(plan, slot)


@kernel
def reserve(room, plan, row, begin, end):  # type: ignore[no-untyped-def]
    """Reserve the nodes that the search found, whole."""
    first = _cut(plan, begin)
    for i in range(first, _cut(plan, end)):
        slot = plan.slot[i]
        for place in range(room.wanted[row]):
            plan.free[slot, room.chosen[place]] = 0
        _note_widest(plan, slot)
