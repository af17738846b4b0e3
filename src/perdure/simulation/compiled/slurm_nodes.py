"""Slurm on nodes, compiled (`perdure.scheduling.slurm.node_space` defines it): partitions have nodes of their own.

Each job takes as many nodes as it asked for (`perdure.scheduling.placement.as_asked`). What a cycle plans means nothing
after it. So a cycle is left out where nobody could start now if nothing were reserved, and ends behind the last job
that could: what later jobs would reserve keeps nobody from starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.compiled.dependencies import Dependencies
from perdure.simulation.compiled.event_heap import NEVER, Ticks
from perdure.simulation.compiled.fair_shares import FairShares, hold
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records
from perdure.simulation.compiled.limit_counts import LimitTable, count_running, limited
from perdure.simulation.compiled.loop import kernels
from perdure.simulation.compiled.slurm import arrive, become_eligible, begins_cycle, next_change
from perdure.simulation.compiled.slurm_cycle import one_too_many, reserves
from perdure.simulation.compiled.slurm_part import counted_part
from perdure.simulation.compiled.slurm_queue import calculate, join, length_of, may_start, note_start
from perdure.simulation.compiled.state import come, start
from perdure.simulation.workload import Workload

WINDOWS = 64  # of ends that are taken together: each reaches twice as far as the one before

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


class NodeRoom(NamedTuple):
    """The nodes, and what each running job has of them.

    Between passes ``free[i]`` and the shares on node i make up ``size[i]``. The shares of a job are `held` places of
    `node` and `gpus` from `first` on.
    """

    size: Longs
    free: Longs
    mine: Flags  # (n_partitions, n_nodes)
    wanted: Longs  # of each job, on how many nodes it runs
    first: Longs
    held: Longs
    node: Longs
    gpus: Longs
    chosen: Longs  # what the last search found
    least: Longs  # free on each node throughout the stretch that is looked at
    barred: Flags  # nodes of partitions in which nobody is started any more in this pass
    closed: Flags  # those partitions
    end: Longs  # expected ends of running jobs, the earliest first
    ends: Longs  # their rows
    tally: Records  # one record


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


class NodePart(NamedTuple):
    """As `slurm_part.SlurmPart`, with nodes in the place of an agenda and a forecast."""

    how: Records
    job: Records
    queue: Longs
    of_size: Longs
    fair: FairShares
    limits: LimitTable
    dependencies: Dependencies
    begins: Ticks
    room: NodeRoom
    plan: NodePlan
    reserved: Longs
    tested: Longs
    tally: Records


def node_part_of(
    policy: Slurm, jobs: Workload, cluster: Cluster, placement: AsAsked, held: Mapping[int, Shares]
) -> NodePart | None:
    """Nobody waits, nobody runs; `held` are the shares of jobs that are to run from before. None for what the plain
    policy alone knows.
    """
    settings = policy.settings
    if not settings.on_nodes or any(each.whole_nodes for each in settings.partitions):
        return None
    counted = counted_part(settings, jobs, cluster.total_gpus, cluster.gpus.tolist())
    n, running = len(jobs), len(counted.started)
    mine = np.ones((len(settings.partitions), len(cluster)), np.bool_)
    for place, each in enumerate(settings.partitions):
        if each.nodes is not None:
            mine[place] = np.isin(np.arange(len(cluster)), each.nodes)
    ends = WINDOWS if settings.backfill.end_window_s else running
    stretches = ends + 3 * min(n, settings.backfill.max_job_test) + 8
    plan = NodePlan(
        np.zeros(stretches, np.int64),
        np.zeros(stretches, np.int64),
        np.zeros((stretches, len(cluster)), np.int32),
        np.zeros(stretches, np.int32),
        np.zeros(1, np.int64),
    )
    room = _room(jobs, cluster, placement, held, mine, running)
    given = counted._asdict()
    shared = {name: given[name] for name in NodePart._fields if name in given}
    how = records(1, end_window=LONG, **{name: counted.how.dtype[name].type for name in counted.how.dtype.names or ()})
    for name in counted.how.dtype.names or ():
        how[name] = counted.how[name]
    how["end_window"] = round(settings.backfill.end_window_s * jobs.ticks_per_s)
    return NodePart(**{**shared, "how": how, "room": room, "plan": plan})


def _room(
    jobs: Workload, cluster: Cluster, placement: AsAsked, held: Mapping[int, Shares], mine: Flags, running: int
) -> NodeRoom:
    size = np.array(cluster.gpus, np.int64)
    wanted = np.array([placement.nodes_for(row, gpus) for row, gpus in enumerate(jobs.gpus.tolist())], np.int64)
    places = wanted.copy()
    for row, shares in held.items():
        places[row] = max(places[row], len(shares))
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(places)])
    room = NodeRoom(
        size=size,
        free=size.copy(),
        mine=mine,
        wanted=wanted,
        first=first,
        held=np.zeros(len(jobs), np.int64),
        node=np.zeros(first[-1], np.int64),
        gpus=np.zeros(first[-1], np.int64),
        chosen=np.zeros(max(len(size), int(wanted.max(initial=1))), np.int64),
        least=np.zeros(len(size), np.int64),
        barred=np.zeros(len(size), np.bool_),
        closed=np.zeros(len(mine), np.bool_),
        end=np.zeros(running, np.int64),
        ends=np.zeros(running, np.int64),
        tally=records(1, ends=LONG),
    )
    for row, shares in held.items():
        room.held[row] = len(shares)
        for place, (node, gpus) in enumerate(shares, int(first[row])):
            room.node[place], room.gpus[place] = node, gpus
    return room


@kernel
def _each(room, row, gpus):  # type: ignore[no-untyped-def]
    """GPUs that a node must have free to be one of the job's."""
    return -(-gpus // room.wanted[row])


@kernel
def _choose(room, row, partition, gpus, free):  # type: ignore[no-untyped-def]
    """Find the job's nodes, as `AsAsked` does: the fullest that have room, of equal ones the lowest. Whether there are
    enough. `chosen` has them.
    """
    each = _each(room, row, gpus)
    last, last_free = np.int64(-1), np.int64(-1)
    for found in range(room.wanted[row]):
        best = np.int64(-1)
        for node in range(len(room.size)):
            if free[node] < each or not room.mine[partition, node] or room.barred[node]:
                continue
            if free[node] < last_free or (free[node] == last_free and node <= last):
                continue
            if best < 0 or free[node] < free[best]:
                best = np.int64(node)
        if best < 0:
            return False
        room.chosen[found] = best
        last, last_free = best, np.int64(free[best])
    return True


@kernel
def _hold_chosen(room, row, gpus):  # type: ignore[no-untyped-def]
    """Give the job what the search found."""
    nodes, first = room.wanted[row], room.first[row]
    room.held[row] = nodes
    for i in range(nodes):
        room.node[first + i] = room.chosen[i]
        room.gpus[first + i] = gpus // nodes + (1 if i < gpus % nodes else 0)
        room.free[room.chosen[i]] -= room.gpus[first + i]


@kernel
def _start_chosen(state, part, place):  # type: ignore[no-untyped-def]
    """Start the job at a place of the queue on the nodes that the search found. Enough GPUs are free."""
    row = part.queue[place]
    _hold_chosen(part.room, row, np.int64(state.job[row].gpus))
    start(state, row)
    note_start(state, part, place)
    _expect(part.room, part.job[row].ends, row)


@kernel
def _expect(room, tick, row):  # type: ignore[no-untyped-def]
    """Expect the end of a running job at a tick."""
    i = room.tally[0].ends
    room.tally[0].ends += 1
    while i > 0 and room.end[i - 1] > tick:
        room.end[i] = room.end[i - 1]
        room.ends[i] = room.ends[i - 1]
        i -= 1
    room.end[i] = tick
    room.ends[i] = row


@kernel
def _leave(state, part, row):  # type: ignore[no-untyped-def]
    """The end of an attempt is not awaited any more, and its nodes are free."""
    room, gpus = part.room, np.int64(state.job[row].gpus)
    for i in range(room.first[row], room.first[row] + room.held[row]):
        room.free[room.node[i]] += room.gpus[i]
    room.held[row] = 0
    place = np.int64(0)
    while room.ends[place] != row:
        place += 1
    room.tally[0].ends -= 1
    while place < room.tally[0].ends:
        room.end[place] = room.end[place + 1]
        room.ends[place] = room.ends[place + 1]
        place += 1
    count_running(part.limits, row, -1, -gpus)
    if part.how[0].fair_weight:
        hold(part.fair, part.job[row].node, -gpus, state.tally[0].now)
    part.tally[0].changed = True


@kernel
def _give(state, part):  # type: ignore[no-untyped-def]
    """The main pass, and a backfill cycle if one is due; see `slurm._give`."""
    how, tally, now = part.how[0], part.tally[0], state.tally[0].now
    become_eligible(state, part)
    depth = how.depth
    if now >= tally.next_whole_pass:
        tally.next_whole_pass = now + how.between_passes
        depth = 0
    tally.cut = False
    if may_start(state, part) or 0 < depth < how.partitions:
        calculate(state, part)
        waited = tally.many
        tally.cut = _main_pass(state, part, depth)
        tally.changed |= tally.many < waited
    if begins_cycle(state, part) and may_start(state, part):
        calculate(state, part)
        tally.changed = _backfill_cycle(state, part)


@kernel
def _main_pass(state, part, depth):  # type: ignore[no-untyped-def]
    """Start jobs in their order; one that finds no room ends the pass for its partition, and on its nodes for all.

    Returns whether the depth ended it.
    """
    room, attempts, place, bound = part.room, 0, 0, part.how[0].partition_depth
    part.reserved[:] = 0
    room.barred[:] = False
    room.closed[:] = False
    left = len(room.closed)
    while place < part.tally[0].many and left:
        row = part.queue[place]
        partition, gpus = part.job[row].partition, np.int64(state.job[row].gpus)
        if room.closed[partition] or limited(part.limits, row, gpus):
            place += 1
            continue
        if depth and attempts >= depth:
            return True
        if bound and part.reserved[partition] >= bound:
            place += 1
            continue
        attempts += 1
        part.reserved[partition] += 1
        if _choose(room, row, partition, gpus, room.free):
            _start_chosen(state, part, place)
            continue
        room.closed[partition] = True
        left -= 1
        for node in range(len(room.size)):
            room.barred[node] |= room.mine[partition, node]
        place += 1
    return False


@kernel
def _backfill_cycle(state, part):  # type: ignore[no-untyped-def]
    """A backfill cycle; whether it ended as it had started as many jobs as it may."""
    how, room, plan, now = part.how[0], part.room, part.plan, state.tally[0].now
    room.barred[:] = False
    last = _last_that_fits(state, part)
    if last < 0:
        return False
    part.reserved[:] = 0
    part.tested[:] = 0
    _plan_from(room, plan, now, how.end_window)
    place, started, tested = np.int64(0), 0, 0
    while place <= last:
        row = part.queue[place]
        gpus, partition = np.int64(state.job[row].gpus), part.job[row].partition
        place += 1
        if limited(part.limits, row, gpus) or (how.bounded and one_too_many(part, row)):
            continue
        tested += 1
        if tested > how.max_job_test:
            break
        length = length_of(state, part, row)
        tick = _earliest(room, plan, row, partition, gpus, length)
        if tick == now:
            place -= 1
            last -= 1
            _start_chosen(state, part, place)
            _run(room, plan, row, now + length)
            started += 1
            if started == how.max_job_start:
                return True
        elif tick <= now + how.window and reserves(state, part, row):
            part.reserved[partition] += 1
            end = tick + length
            rounded = end - end % how.resolution
            begin = max(now, tick - tick % how.resolution)
            _reserve(room, plan, row, begin, rounded if rounded > tick else end)
    return False


@kernel
def _last_that_fits(state, part):  # type: ignore[no-untyped-def]
    """The last place of the queue whose job would fit now if nothing were reserved; -1 for none."""
    room, last, tested = part.room, np.int64(-1), 0
    for place in range(part.tally[0].many):
        row = part.queue[place]
        gpus, partition = np.int64(state.job[row].gpus), part.job[row].partition
        if limited(part.limits, row, gpus):
            continue
        tested += 1
        if tested > part.how[0].max_job_test and not part.how[0].bounded:
            break
        each, nodes = _each(room, row, gpus), room.wanted[row]
        for node in range(len(room.size)):
            if room.free[node] >= each and room.mine[partition, node]:
                nodes -= 1
        if nodes <= 0:
            last = np.int64(place)
    return last


@kernel
def _plan_from(room, plan, now, window):  # type: ignore[no-untyped-def]
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
def _earliest(room, plan, row, partition, gpus, length):  # type: ignore[no-untyped-def]
    """The first tick from which the job finds its nodes for so long, which `chosen` has then; `NEVER` if there is none.

    Looks at each stretch from its own nodes on, and leaves it as soon as too few of them stay free.
    """
    each, wanted, many = _each(room, row, gpus), room.wanted[row], plan.many[0]
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
        if fits and _choose(room, row, partition, gpus, room.least):
            return plan.tick[i]
    return NEVER


@kernel
def _run(room, plan, row, end):  # type: ignore[no-untyped-def]
    """The job runs, until then as far as is known."""
    for i in range(_cut(plan, end)):
        slot = plan.slot[i]
        for share in range(room.first[row], room.first[row] + room.held[row]):
            plan.free[slot, room.node[share]] -= room.gpus[share]
        _note_widest(plan, slot)


@kernel
def _reserve(room, plan, row, begin, end):  # type: ignore[no-untyped-def]
    """Reserve the nodes that the search found, whole."""
    first = _cut(plan, begin)
    for i in range(first, _cut(plan, end)):
        slot = plan.slot[i]
        for place in range(room.wanted[row]):
            plan.free[slot, room.chosen[place]] = 0
        _note_widest(plan, slot)


@kernel
def run_since(state, part, row, tick):  # type: ignore[no-untyped-def]
    """Let a job run that does so since a tick, before the first event, on the nodes that it was told to have.

    Where those are not told it finds its own; where there are none it waits.
    """
    room, gpus = part.room, np.int64(state.job[row].gpus)
    state.tally[0].now = tick
    come(state, row)
    join(state, part, row)
    place = np.int64(0)
    while part.queue[place] != row:
        place += 1
    if not room.held[row]:
        if _choose(room, row, part.job[row].partition, gpus, room.free):
            _start_chosen(state, part, place)
        return
    for i in range(room.first[row], room.first[row] + room.held[row]):
        room.free[room.node[i]] -= room.gpus[i]
    start(state, row)
    note_start(state, part, place)
    _expect(room, part.job[row].ends, row)


kernels(NodePart, arrive, _leave, _give, next_change)
