"""What is free on each node, stretch by stretch, in one backfill cycle of a compiled live queue.

The plain form is `perdure.scheduling.slurm.node_space.NodePlan`, whose reservations are flags next to the counts. Here
a reserved node has 0 GPUs free instead, which bars jobs as well and saves an array. A plan is made at the beginning of
a cycle and dropped at its end. Times are ticks, counts are GPUs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.expected_ends import place_of_tick
from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.node_room import Longs, choose, gpus_each

WINDOWS = 64  # of ends that are taken together: each reaches twice as far as the one before


class NodePlan(NamedTuple):
    """What is free on each node besides running jobs and reservations, stretch by stretch, in one cycle.

    Stretch i begins at ``tick[i]`` and lasts to the next tick, the last one for ever; the first ``many[0]`` are in use,
    in ascending order. Its counts are ``free[slot[i]]``, of which ``widest[slot[i]]`` is the largest. A node that is
    reserved has nothing free.

    Slots are a level of indirection: a stretch that is put in between moves two numbers of those behind it, instead of
    their counts on all nodes. `widest` lets a search pass over a stretch in which no node has enough.
    """

    tick: Longs  # (n_stretches,)
    slot: Longs  # (n_stretches,)
    free: NDArray[np.int32]  # (n_stretches, n_nodes), by slot
    widest: NDArray[np.int32]  # (n_stretches,), by slot
    many: Longs  # one number: the stretches in use


def plan_of(ends: int, tests: int, nodes: int) -> NodePlan:
    """A plan without stretches, with room for a whole cycle.

    `ends` are the most ends of running jobs, or windows of them, each of which begins a stretch; `tests` the most jobs
    that a cycle tests, each of which begins at most two: where a reservation begins and where it ends.
    """
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
    """Begin a cycle with what running jobs leave free; ends within a window count as its last one.

    An end that is over, of a job that outlives its limit, is expected at the next tick. `window` is in ticks, 0 takes
    each end by itself. The ends are in ascending order, so that one walk finds those that are together and adds what
    they free at once: fewer stretches make each later search shorter.

    See `perdure.scheduling.slurm.node_space.taken_together`, also for where Slurm does so.
    """
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
    """Whether two ends lie in one window; without windows, whether they are at the same tick."""
    if not window:
        return end == other
    return _window_of(end, base, window) == _window_of(other, base, window)


@kernel
def _window_of(end, base, window):  # type: ignore[no-untyped-def]
    """The number of the window in which an end lies, from 0; each reaches twice as far from `base` as the one before.

    `base` is the first multiple of the window behind the earliest end. The number is the bit length of the windows
    between, counted without floating point.
    """
    steps, number = max(0, -(-(end - base) // window) - 1), 0
    while steps:
        steps >>= 1
        number += 1
    return number


@kernel
def _note_widest(plan, slot):  # type: ignore[no-untyped-def]
    """Keep `widest` true after the counts of a slot have changed."""
    widest = plan.free[slot, 0]
    for node in range(1, plan.free.shape[1]):
        widest = max(widest, plan.free[slot, node])
    plan.widest[slot] = widest


@kernel
def _cut(plan, tick):  # type: ignore[no-untyped-def]
    """Split the stretches at a tick, which is not before the first one; the position of the stretch that begins there.

    Changes nothing in what is free: the new stretch copies the counts of the one that it was part of. A binary search,
    then a shift of ticks and slots. A tick at which a stretch begins already is left as it is.
    """
    low, many = place_of_tick(plan, tick), plan.many[0]
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
    """The first tick from which the job finds its nodes for `length` ticks; ``room.chosen`` then has them. Else
    `NEVER`.

    A job may start only where a stretch begins: between two of them nothing comes free. From each stretch on ``least``
    keeps the fewest GPUs that each node has free until the job would end; the try is given up as soon as too few nodes
    are left. Costs the stretches, times those that the job spans, times the nodes; most tries end at their first one.
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
    """Take what a job that has just started holds, from the beginning of the plan to its expected end."""
    for i in range(_cut(plan, end)):
        slot = plan.slot[i]
        for share in range(room.first[row], room.first[row] + room.held[row]):
            plan.free[slot, room.node[share]] -= room.gpus[share]
        _note_widest(plan, slot)


@kernel
def reserve(room, plan, row, begin, end):  # type: ignore[no-untyped-def]
    """Reserve the nodes in ``room.chosen`` from one tick to another: whole, as slurmctld has a bit for each node."""
    first = _cut(plan, begin)
    for i in range(first, _cut(plan, end)):
        slot = plan.slot[i]
        for place in range(room.wanted[row]):
            plan.free[slot, room.chosen[place]] = 0
        _note_widest(plan, slot)
