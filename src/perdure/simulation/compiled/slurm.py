"""Slurm, compiled (`perdure.scheduling.slurm` defines it): GPUs in one pool.

What it keeps from pass to pass is a `SlurmPart`; `slurm_queue` has the order of the jobs, `slurm_cycle` the backfill.
Instants and lengths are ticks, sizes are GPUs, and jobs are rows of the workload, here and in these modules.

A pass is left out where fewer GPUs are free than any of the waiting jobs asks for, as it could start nobody. A backfill
cycle is left out where nothing has happened since the one before. Most of those that slurmctld makes change nothing;
so a replay takes time by its events, not by the hours that it covers.
"""

from __future__ import annotations

import numpy as np

from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.compiled.dependencies import defer, depends, is_met, next_met
from perdure.simulation.compiled.event_heap import first_tick, pop, push
from perdure.simulation.compiled.expected_ends import expect, strike
from perdure.simulation.compiled.fair_shares import count_from, hold
from perdure.simulation.compiled.kernel import entry, kernel
from perdure.simulation.compiled.limit_counts import count_running, limited
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.slurm_cycle import backfill_cycle
from perdure.simulation.compiled.slurm_part import SlurmPart, part_of
from perdure.simulation.compiled.slurm_queue import calculate, join, may_start, start_at
from perdure.simulation.compiled.state import come
from perdure.simulation.workload import Workload


def prepare(policy: Slurm, jobs: Workload, total_gpus: int) -> SlurmPart | None:
    """The part before the first event; None for what the plain policy alone knows.

    None also where jobs depend on others, on whose ends a retry policy may be asked, and where one would never start:
    the plain loop tells which, and why.
    """
    part = None if jobs.asks.needs is not None else part_of(policy, jobs, total_gpus)
    return None if part is None or part.job["refused"].any() else part


@kernel
def arrive(state, part, row):  # type: ignore[no-untyped-def]
    """A job that came waits for others, for its begin time, or in the queue; or is refused for ever."""
    part.job[row].waits = True
    if part.job[row].refused:
        return
    if not depends(part.dependencies, row):
        _begin(state, part, row)
    elif is_met(state, part, row):
        _begin_dependent(state, part, row)
    else:
        defer(part.dependencies, row)


@kernel
def _begin_dependent(state, part, row):  # type: ignore[no-untyped-def]
    """A job that waits for no other any more accrues age from now on at the earliest."""
    part.job[row].eligible = max(state.tally[0].now, part.job[row].eligible)
    _begin(state, part, row)


@kernel
def _begin(state, part, row):  # type: ignore[no-untyped-def]
    """Make a job wait for its begin time, or queue it."""
    if part.job[row].eligible > state.tally[0].now:
        push(part.begins, row, part.job[row].eligible)
    else:
        join(state, part, row)


@kernel
def become_eligible(state, part):  # type: ignore[no-untyped-def]
    """Queue the jobs whose dependencies are met, or whose begin time has come.

    A job whose last dependency is met now may have its begin time still ahead, and waits for that then.
    """
    row, place = next_met(state, part, 0)
    while row >= 0:
        _begin_dependent(state, part, row)
        row, place = next_met(state, part, place)
    while first_tick(part.begins) <= state.tally[0].now:
        join(state, part, pop(part.begins))


@kernel
def _leave(state, part, row):  # type: ignore[no-untyped-def]
    """The end of an attempt is not awaited any more.

    It is struck from the agenda under the tick at which it was *expected*, which is not now where a job ends before its
    limit. Freed GPUs are something for the next backfill cycle to see.
    """
    gpus = np.int64(state.job[row].gpus)
    strike(part.agenda, part.job[row].ends, gpus)
    count_running(part.limits, row, -1, -gpus)
    if part.how[0].fair_weight:
        hold(part.fair, part.job[row].node, -gpus, state.tally[0].now)
    part.tally[0].changed = True


@kernel
def next_change(state, part):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The next begin time, whole pass or backfill cycle; the latter two only if there is something to see.

    A whole pass sees more than the last one only where its depth cut that short. Without these two conditions the loop
    would stop at each interval of an idle night.
    """
    tally, tick = part.tally[0], first_tick(part.begins)
    if tally.many:
        if tally.cut:
            tick = min(tick, tally.next_whole_pass)
        if tally.changed and part.how[0].enabled:
            tick = min(tick, tally.next_cycle)
    return tick


@kernel
def _give(state, part):  # type: ignore[no-untyped-def]
    """The main pass, and a backfill cycle if one is due.

    As in the plain policy: a cycle is due once the interval has passed since the last one, if a job came, became
    eligible, started or ended since; `changed` keeps that. A pass that no waiting job is narrow enough for is left out.
    """
    how, tally, now = part.how[0], part.tally[0], state.tally[0].now
    become_eligible(state, part)
    depth = how.depth
    if now >= tally.next_whole_pass:
        tally.next_whole_pass = now + how.between_passes
        depth = 0
    tally.cut = False
    if may_start(state, part):
        calculate(state, part)
        waited = tally.many
        tally.cut = _main_pass(state, part, depth)
        tally.changed |= tally.many < waited
    if begins_cycle(state, part) and may_start(state, part):
        calculate(state, part)
        tally.changed = backfill_cycle(state, part)


@kernel
def begins_cycle(state, part):  # type: ignore[no-untyped-def]
    """Whether a backfill cycle begins now; nothing has changed since it, then.

    Cycles are whole intervals apart, as if those that were left out had taken place: how late a job starts depends on
    where in the interval it came.
    """
    how, tally, now = part.how[0], part.tally[0], state.tally[0].now
    if not (tally.changed and how.enabled):
        return False
    if now > tally.next_cycle:  # cycles that would have seen nothing new were left out
        tally.next_cycle += -(-(now - tally.next_cycle) // how.interval) * how.interval
    if now != tally.next_cycle:
        return False
    tally.next_cycle = now + how.interval
    tally.changed = False
    return True


@kernel
def _main_pass(state, part, depth):  # type: ignore[no-untyped-def]
    """Start jobs in their order until one finds no room; whether the depth ended it.

    The bound on jobs of a partition lets those behind them be attempted, and so do limits. All partitions share the
    GPUs here, so that one that finds no room closes all of them.
    """
    attempts, place, bound = 0, 0, part.how[0].partition_depth
    part.reserved[:] = 0
    while place < part.tally[0].many:
        row = part.queue[place]
        if limited(part.limits, row, np.int64(state.job[row].gpus)):
            place += 1
            continue
        if depth and attempts >= depth:
            return True
        partition = part.job[row].partition
        if bound and part.reserved[partition] >= bound:
            place += 1
            continue
        attempts += 1
        part.reserved[partition] += 1
        if not start_at(state, part, place):
            return False
        expect(part.agenda, part.job[row].ends, np.int64(state.job[row].gpus))
    return False


@kernel
def run_since(state, part, row, tick):  # type: ignore[no-untyped-def]
    """Before the first event: make a job run, since this tick.

    For a queue that begins with a picture: the job goes through the queue like any other, so that limits, shares and
    the agenda count it as they do in a replay.
    """
    state.tally[0].now = tick
    come(state, row)
    join(state, part, row)
    place = 0
    while part.queue[place] != row:
        place += 1
    start_at(state, part, place)
    expect(part.agenda, part.job[row].ends, np.int64(state.job[row].gpus))


@kernel
def wait_since(state, part, row, tick):  # type: ignore[no-untyped-def]
    """Before the first event: make a job wait, since this tick."""
    state.tally[0].now = tick
    come(state, row)
    arrive(state, part, row)


@kernel
def look_at(state, part, now):  # type: ignore[no-untyped-def]
    """Make a whole pass and a backfill cycle at a tick, whatever has happened before; usage counts from there.

    The picture from which a live queue begins says nothing of when slurmctld made its last ones.
    """
    if part.how[0].fair_weight:
        count_from(part.fair, now)
    state.tally[0].now = now
    while first_tick(part.begins) <= now:  # begin times that are over are no instants to come
        join(state, part, pop(part.begins))
    part.tally[0].changed = True
    part.tally[0].cut = True
    part.tally[0].next_cycle = now
    part.tally[0].next_whole_pass = now


kernels(SlurmPart, arrive, _leave, _give, next_change)


@entry
def advance(state, part, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for this policy."""
    return run(state, part, asks, resumed)
