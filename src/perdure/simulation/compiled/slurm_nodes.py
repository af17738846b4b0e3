"""Slurm on nodes, compiled (`perdure.scheduling.slurm.node_space` defines it): partitions have nodes of their own.

Each job takes as many nodes as it asked for (`perdure.scheduling.placement.as_asked`). What a cycle plans means nothing
after it. So a cycle is left out where nobody could start now if nothing were reserved, and ends behind the last job
that could: what later jobs would reserve keeps nobody from starting.

Times are ticks, sizes are GPUs. Where GPUs are only counted (`slurm`), a pass stops at the first job without room;
here it goes on, because a partition with other nodes may still have room. The queue, shares, limits and dependencies
are those of `slurm_queue` and `slurm`; only what touches nodes is written again here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from perdure.model.cluster import Cluster
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.compiled.dependencies import Dependencies
from perdure.simulation.compiled.event_heap import Ticks
from perdure.simulation.compiled.fair_shares import FairShares, hold
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records
from perdure.simulation.compiled.limit_counts import LimitTable, count_running, limited
from perdure.simulation.compiled.loop import kernels
from perdure.simulation.compiled.node_plan import WINDOWS, NodePlan, earliest, plan_from, plan_of, reserve, run
from perdure.simulation.compiled.node_room import (
    Longs,
    NodeRoom,
    choose,
    expect,
    gpus_each,
    hold_chosen,
    room_of,
    stop_expecting,
)
from perdure.simulation.compiled.slurm import arrive, become_eligible, begins_cycle, next_change
from perdure.simulation.compiled.slurm_cycle import one_too_many, reserves
from perdure.simulation.compiled.slurm_part import counted_part
from perdure.simulation.compiled.slurm_queue import calculate, join, length_of, may_start, note_start
from perdure.simulation.compiled.state import come, start
from perdure.simulation.workload import Workload


class NodePart(NamedTuple):
    """As `slurm_part.SlurmPart`, with nodes in the place of an agenda and a forecast.

    Fields of the same name hold the same, so that kernels of `slurm` and `slurm_queue` take either part. `how` has one
    field more, `end_window`: ends of running jobs within this many ticks count as one; 0 takes each by itself. `plan`
    means something within a backfill cycle only, so that a fork of the simulation shares it (`live`).
    """

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
    """The part before the first event: nobody waits, nobody runs.

    `held` are the shares of jobs that are to run from before, by row. A partition without a list of nodes has all of
    them. None for what only the plain policy models: settings without nodes, and partitions that give whole nodes.

    The plan has room for the most stretches that a cycle can make, since kernels allocate nothing: one for each end of
    a running job, or for each window of ends, and two for each job that a cycle may test.
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
    tests = min(n, settings.backfill.max_job_test)
    plan = plan_of(WINDOWS if settings.backfill.end_window_s else running, tests, len(cluster))
    room = room_of(jobs, cluster, placement, held, mine, running)
    given = counted._asdict()
    shared = {name: given[name] for name in NodePart._fields if name in given}
    how = records(1, end_window=LONG, **{name: counted.how.dtype[name].type for name in counted.how.dtype.names or ()})
    for name in counted.how.dtype.names or ():
        how[name] = counted.how[name]
    how["end_window"] = round(settings.backfill.end_window_s * jobs.ticks_per_s)
    return NodePart(**{**shared, "how": how, "room": room, "plan": plan})


@kernel
def _start_chosen(state, part, place):  # type: ignore[no-untyped-def]
    """Start the job at a place of the queue on the nodes in ``room.chosen``; this cannot fail.

    A search must have found them since the last start, in what is free now: nothing is checked again. The job leaves
    the queue, so that those behind it move forward by one place. Its end is expected after its limit, or its true
    running time where nobody set one.
    """
    row = part.queue[place]
    hold_chosen(part.room, row, np.int64(state.job[row].gpus))
    start(state, row)
    note_start(state, part, place)
    expect(part.room, part.job[row].ends, row)


@kernel
def _leave(state, part, row):  # type: ignore[no-untyped-def]
    """An attempt is over: free its nodes, and take it out of the counts of limits and of usage.

    Marks the state as changed, so that the next backfill cycle takes place.
    """
    room, gpus = part.room, np.int64(state.job[row].gpus)
    stop_expecting(room, row)
    count_running(part.limits, row, -1, -gpus)
    if part.how[0].fair_weight:
        hold(part.fair, part.job[row].node, -gpus, state.tally[0].now)
    part.tally[0].changed = True


@kernel
def _give(state, part):  # type: ignore[no-untyped-def]
    """The main pass, and a backfill cycle if one is due; see `slurm._give`.

    One difference: a pass whose depth is below the number of partitions takes place even where no job is narrow enough
    to start. Jobs that find no room use the depth up too, and whether it ended the pass (`cut`) decides when the next
    whole pass is.
    """
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

    `depth` bounds the jobs that are attempted, 0: no bound. Returns whether it ended the pass. Jobs of a closed
    partition, and those over a limit, are passed over and do not count. Nodes of a closed partition are barred for
    partitions that share them, so that a later job cannot take what the first one waits for.

    Costs one search of the nodes for each job attempted (`node_room.choose`); ends as soon as all partitions are
    closed.
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
        if choose(room, row, partition, gpus, room.free):
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
    """A backfill cycle; whether it ended because it had started as many jobs as it may.

    Jobs are looked at in the order of the queue, up to the last one that could start now on unreserved nodes. One that
    can start now is started; any other one reserves its nodes from its planned start on, if that lies within the window
    (`how.window`) and the settings allow it (`slurm_cycle.reserves`). A reservation begins and ends at multiples of the
    resolution, rounded down, as in slurmctld; it never begins in the past, nor ends before the start that was found.

    Costs for each job tested what `node_plan.earliest` does.
    """
    how, room, plan, now = part.how[0], part.room, part.plan, state.tally[0].now
    room.barred[:] = False
    last = _last_that_fits(state, part)
    if last < 0:
        return False
    part.reserved[:] = 0
    part.tested[:] = 0
    plan_from(room, plan, now, how.end_window)
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
        tick = earliest(room, plan, row, partition, gpus, length)
        if tick == now:
            place -= 1
            last -= 1
            _start_chosen(state, part, place)
            run(room, plan, row, now + length)
            started += 1
            if started == how.max_job_start:
                return True
        elif tick <= now + how.window and reserves(state, part, row):
            part.reserved[partition] += 1
            end = tick + length
            rounded = end - end % how.resolution
            begin = max(now, tick - tick % how.resolution)
            reserve(room, plan, row, begin, rounded if rounded > tick else end)
    return False


@kernel
def _last_that_fits(state, part):  # type: ignore[no-untyped-def]
    """The last place of the queue whose job would fit now if nothing were reserved; -1 for none.

    Reservations only take room away, so that no job behind that place can start in this cycle. The cycle tests at most
    `max_job_test` jobs, and so does this; where tests are also bounded by user or partition (`bounded`) the cycle may
    pass over some, so that this looks at the whole queue instead.
    """
    room, last, tested = part.room, np.int64(-1), 0
    for place in range(part.tally[0].many):
        row = part.queue[place]
        gpus, partition = np.int64(state.job[row].gpus), part.job[row].partition
        if limited(part.limits, row, gpus):
            continue
        tested += 1
        if tested > part.how[0].max_job_test and not part.how[0].bounded:
            break
        each, nodes = gpus_each(room, row, gpus), room.wanted[row]
        for node in range(len(room.size)):
            if room.free[node] >= each and room.mine[partition, node]:
                nodes -= 1
        if nodes <= 0:
            last = np.int64(place)
    return last


@kernel
def run_since(state, part, row, tick):  # type: ignore[no-untyped-def]
    """Before the first event: make a job run, since this tick, on the nodes that `held` gave it.

    One whose nodes are not known takes those that the placement chooses; where none have room it waits instead. A node
    may then hold more than it has: what the cluster says of running jobs is believed.
    """
    room, gpus = part.room, np.int64(state.job[row].gpus)
    state.tally[0].now = tick
    come(state, row)
    join(state, part, row)
    place = np.int64(0)
    while part.queue[place] != row:
        place += 1
    if not room.held[row]:
        if choose(room, row, part.job[row].partition, gpus, room.free):
            _start_chosen(state, part, place)
        return
    for i in range(room.first[row], room.first[row] + room.held[row]):
        room.free[room.node[i]] -= room.gpus[i]
    start(state, row)
    note_start(state, part, place)
    expect(room, part.job[row].ends, row)


kernels(NodePart, arrive, _leave, _give, next_change)
