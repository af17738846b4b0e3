"""Slurm, compiled (`perdure.scheduling.slurm` defines it): GPUs in one pool, without limits and
dependencies.

The eligible jobs stand in one array in their order. A pass is left out where fewer GPUs are free than any of them asks
for, as it could start nobody; so is, in a backfill cycle, a job that finds no place before the `horizon`: from there
on fewer GPUs are free than anybody needs, so that no reservation begins before and ends behind it, and none behind it
can keep a job from starting now.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.slurm.backfill import CycleTimes
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.priorities import Priorities
from perdure.scheduling.slurm.priority import HIGHEST, LOWEST
from perdure.scheduling.slurm.requests import Requests, requests_of
from perdure.scheduling.slurm.settings import SlurmSettings
from perdure.scheduling.view import View
from perdure.simulation.compiled.event_heap import NEVER, Ticks, empty_ticks, first_tick, pop, push
from perdure.simulation.compiled.expected_ends import Agenda, empty_agenda, expect, strike
from perdure.simulation.compiled.fair_shares import FairShares, count_from, fair_shares_of, hold, rank
from perdure.simulation.compiled.free_gpus import (
    Forecast,
    cut,
    empty_forecast,
    find_in,
    forecast_from,
    go_on,
    widest_before,
)
from perdure.simulation.compiled.kernel import FLAG, LONG, Records, entry, kernel, records
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.state import come, start
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of


class SlurmPart(NamedTuple):
    """Who waits in which order, and who runs.

    Between passes the agenda has one entry for each running job, and `queue` each eligible job once, in the order of
    the priorities of the last calculation. `forecast`, `started` and the counts of `tested` mean something within a
    cycle only.
    """

    how: Records  # one record: the settings, times in ticks
    job: Records
    queue: NDArray[np.int64]  # rows; the first `tally.many`
    of_size: NDArray[np.int64]  # eligible jobs that ask for so many GPUs
    fair: FairShares
    begins: Ticks  # jobs whose begin time lies ahead
    agenda: Agenda
    forecast: Forecast
    started: NDArray[np.int64]  # in this cycle
    reserved: NDArray[np.int64]  # reservations of each partition in this cycle
    tested: NDArray[np.int64]  # jobs tested in this cycle: of each partition, user, user in a partition, association
    tally: Records  # one record


def prepare(policy: Slurm, jobs: Workload, total_gpus: int) -> SlurmPart | None:
    """Nobody waits, nobody runs. None for what the plain policy alone knows."""
    settings, view = policy.settings, view_of(jobs, total_gpus)
    if view.asks.needs is not None:
        return None
    asked = requests_of(view, settings)
    if asked.refused or any(asked.holders) or any(each.nodes is not None for each in asked.partitions):
        return None
    n, most = len(jobs), min(len(jobs), total_gpus)
    bounded = _bounds(settings)
    users, partitions, nodes = len(view.users), len(asked.partitions), len(asked.associations.known)
    counts = partitions + users + users * partitions + nodes if any(bounded) else 0
    later = n if view.asks.eligible is not None else 0
    return SlurmPart(
        _how(settings, view, partitions, users),
        _jobs(view, asked),
        np.zeros(n, np.int64),
        np.zeros(total_gpus + 2, np.int64),
        fair_shares_of(asked.associations.tree, Priorities.of(view, asked, settings.priority).usage),
        empty_ticks(n, later),
        empty_agenda(most),
        empty_forecast(most + 3 * min(n, settings.backfill.max_job_test) + 8),
        np.zeros(most, np.int64),
        np.zeros(partitions, np.int64),
        np.zeros(counts, np.int64),
        records(
            1, many=LONG, narrowest=LONG, calculated=LONG, next_cycle=LONG, next_whole_pass=LONG, changed=FLAG, cut=FLAG
        ),
    )


def _bounds(settings: SlurmSettings) -> tuple[int, ...]:
    each = settings.backfill
    return each.max_job_part, each.max_job_user, each.max_job_user_part, each.max_job_assoc


def _how(settings: SlurmSettings, view: View, partitions: int, users: int) -> Records:
    backfill, main, priority, per_s = settings.backfill, settings.main, settings.priority, view.ticks_per_s
    times = CycleTimes.of(backfill, per_s)
    values = {
        "interval": max(1, round(backfill.interval_s * per_s)),
        "window": times.window,
        "resolution": times.resolution,
        "min_age_reserve": times.min_age_reserve,
        "between_passes": max(1, round(main.sched_interval_s * per_s)),
        "depth": main.default_queue_depth,
        "partition_depth": main.partition_job_depth,
        "max_job_test": backfill.max_job_test,
        "max_job_start": backfill.max_job_start,
        "part_count_reserve": backfill.job_part_count_reserve,
        "min_prio_reserve": backfill.min_prio_reserve,
        "period": max(1, round(priority.calc_period_s * per_s)),
        "age_weight": priority.weights.age if priority.multifactor else 0,
        "fair_weight": priority.weights.fairshare if priority.multifactor else 0,
        "partitions": partitions,
        "users": users,
    }
    values |= zip(("max_part", "max_user", "max_user_part", "max_assoc"), _bounds(settings), strict=True)
    flags = {
        "enabled": backfill.enabled,
        "accrue_always": "ACCRUE_ALWAYS" in priority.flags,
        "bounded": any(_bounds(settings)),
        "later": view.asks.eligible is not None,
    }
    how = records(1, max_age=np.float64, **dict.fromkeys(values, LONG), **dict.fromkeys(flags, FLAG))
    for name, value in {**values, **flags, "max_age": priority.max_age_s * per_s}.items():
        how[name] = value
    return how


def _jobs(view: View, asked: Requests) -> Records:
    """A record for each job, none of which has come yet."""
    job = records(
        len(view.gpus),
        fixed=np.float64,  # of its priority
        priority=LONG,  # as last calculated
        tier=LONG,
        partition=LONG,
        user=LONG,
        node=LONG,  # its association
        limit=LONG,  # 0 where there is none
        eligible=LONG,
        since=LONG,  # from when it accrues age
        ends=LONG,  # expected
    )
    tiers = np.array([each.priority_tier for each in asked.partitions], np.int64)
    job["fixed"] = asked.fixed
    job["partition"], job["tier"] = asked.partition, tiers[asked.partition]
    job["user"], job["node"], job["limit"] = view.user, list(asked.associations.of_job), asked.limit
    if view.asks.eligible is not None:
        job["eligible"] = view.asks.eligible
    return job


@kernel
def _arrive(state, part, row):  # type: ignore[no-untyped-def]
    """A job that came waits for its begin time, or stands in the queue."""
    if part.how[0].later and part.job[row].eligible > state.tally[0].now:
        push(part.begins, row, part.job[row].eligible)
    else:
        _join(state, part, row)


@kernel
def _join(state, part, row):  # type: ignore[no-untyped-def]
    """A job becomes eligible: it stands where its priority of the last calculation puts it."""
    job, tally = part.job[row], part.tally[0]
    came = state.job[row].since
    job.since = came if part.how[0].accrue_always else max(came, job.eligible)
    job.priority = _priority(part, row)
    low, high = np.int64(0), tally.many
    while low < high:
        middle = (low + high) >> 1
        if _precedes(state, part, part.queue[middle], row):
            low = middle + 1
        else:
            high = middle
    i = tally.many
    while i > low:
        part.queue[i] = part.queue[i - 1]
        i -= 1
    part.queue[low] = row
    tally.many += 1
    gpus = np.int64(state.job[row].gpus)
    part.of_size[gpus] += 1
    if tally.many == 1 or gpus < tally.narrowest:
        tally.narrowest = gpus
    tally.changed = True


@kernel
def _quit(state, part, place):  # type: ignore[no-untyped-def]
    """Take the job at a place of the queue out."""
    tally = part.tally[0]
    gpus = np.int64(state.job[part.queue[place]].gpus)
    tally.many -= 1
    for i in range(place, tally.many):
        part.queue[i] = part.queue[i + 1]
    part.of_size[gpus] -= 1
    if tally.many:
        while part.of_size[tally.narrowest] == 0:
            tally.narrowest += 1


@kernel
def _precedes(state, part, row, other):  # type: ignore[no-untyped-def]
    """Whether a job stands before another: by the tier of its partition, its priority, when it came, and its row."""
    one, two = part.job[row], part.job[other]
    if one.tier != two.tier:
        return one.tier > two.tier
    if one.priority != two.priority:
        return one.priority > two.priority
    came, came_too = state.job[row].since, state.job[other].since
    return came < came_too or (came == came_too and row < other)


@kernel
def _priority(part, row):  # type: ignore[no-untyped-def]
    """The same as `perdure.scheduling.slurm.priority.priority`, at the last calculation."""
    how, job = part.how[0], part.job[row]
    waited = np.float64(max(0, part.tally[0].calculated - job.since))
    factor = min(1.0, waited / how.max_age) if how.max_age > 0 else np.float64(waited > 0)
    share = how.fair_weight * part.fair.node[job.node].factor if how.fair_weight else 0.0
    return np.int64(min(HIGHEST, max(LOWEST, job.fixed + how.age_weight * factor + share)))


@kernel
def _calculate(state, part):  # type: ignore[no-untyped-def]
    """Calculate the priorities, if that is due, and put the queue in order: it nearly is."""
    how, tally = part.how[0], part.tally[0]
    calculated = state.tally[0].now - state.tally[0].now % how.period
    if calculated == tally.calculated:
        return
    tally.calculated = calculated
    if how.fair_weight:
        rank(part.fair, state.tally[0].now)
    elif how.age_weight == 0:
        return
    for i in range(tally.many):
        row = part.queue[i]
        part.job[row].priority = _priority(part, row)
        place = i
        while place > 0 and _precedes(state, part, row, part.queue[place - 1]):
            part.queue[place] = part.queue[place - 1]
            place -= 1
        part.queue[place] = row


@kernel
def _leave(state, part, row):  # type: ignore[no-untyped-def]
    """The end of an attempt is not awaited any more."""
    gpus = np.int64(state.job[row].gpus)
    strike(part.agenda, part.job[row].ends, gpus)
    if part.how[0].fair_weight:
        hold(part.fair, part.job[row].node, -gpus, state.tally[0].now)
    part.tally[0].changed = True


@kernel
def _next_change(state, part):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The next begin time, whole pass or backfill cycle; the latter two only if there is something to see."""
    tally, tick = part.tally[0], first_tick(part.begins)
    if tally.many:
        if tally.cut:
            tick = min(tick, tally.next_whole_pass)
        if tally.changed and part.how[0].enabled:
            tick = min(tick, tally.next_cycle)
    return tick


@kernel
def _give(state, part):  # type: ignore[no-untyped-def]
    """The main pass, and a backfill cycle if one is due."""
    how, tally, now = part.how[0], part.tally[0], state.tally[0].now
    while first_tick(part.begins) <= now:
        _join(state, part, pop(part.begins))
    depth = how.depth
    if now >= tally.next_whole_pass:
        tally.next_whole_pass = now + how.between_passes
        depth = 0
    tally.cut = False
    if _may_start(state, part):
        _calculate(state, part)
        waited = tally.many
        tally.cut = _main_pass(state, part, depth)
        tally.changed |= tally.many < waited
    if tally.changed and how.enabled and now >= tally.next_cycle:
        tally.next_cycle = now + how.interval
        tally.changed = False
        if _may_start(state, part):
            _calculate(state, part)
            tally.changed = _cycle(state, part)


@kernel
def _may_start(state, part):  # type: ignore[no-untyped-def]
    """Whether anybody waits who asks for no more than is free."""
    return part.tally[0].many > 0 and part.tally[0].narrowest <= state.places.tally[0].total_free


@kernel
def _start(state, part, place):  # type: ignore[no-untyped-def]
    """Start the job at a place of the queue, if there is room; when it is expected to end is for the caller to note."""
    row = part.queue[place]
    if not start(state, row):
        return False
    part.job[row].ends = state.tally[0].now + _length(state, part, row)
    if part.how[0].fair_weight:
        hold(part.fair, part.job[row].node, np.int64(state.job[row].gpus), state.tally[0].now)
    _quit(state, part, place)
    return True


@kernel
def _length(state, part, row):  # type: ignore[no-untyped-def]
    """Ticks that a job is expected to take; at least one."""
    limit = part.job[row].limit
    return max(1, limit if limit else state.work[state.job[row].record])


@kernel
def _main_pass(state, part, depth):  # type: ignore[no-untyped-def]
    """Start jobs in their order until one finds no room; whether the depth ended it.

    The bound on jobs of a partition lets those behind them be attempted.
    """
    attempts, place, bound = 0, 0, part.how[0].partition_depth
    part.reserved[:] = 0
    while place < part.tally[0].many:
        if depth and attempts >= depth:
            return True
        row = part.queue[place]
        partition = part.job[row].partition
        if bound and part.reserved[partition] >= bound:
            place += 1
            continue
        attempts += 1
        part.reserved[partition] += 1
        if not _start(state, part, place):
            return False
        expect(part.agenda, part.job[row].ends, np.int64(state.job[row].gpus))
    return False


@kernel
def _cycle(state, part):  # type: ignore[no-untyped-def]
    """A backfill cycle; whether it ended as it had started as many jobs as it may.

    It ends early where nobody can start any more.
    """
    how, tally, now = part.how[0], part.tally[0], state.tally[0].now
    exact = how.part_count_reserve > 0  # then each reservation counts
    horizon, widest = NEVER, NEVER
    place, started, tested = 0, 0, 0
    forecast_from(part.forecast, now, state.places.tally[0].total_free)
    part.reserved[:] = 0
    part.tested[:] = 0
    while place < tally.many and horizon > now and tally.narrowest <= part.forecast.stretch[0].free:
        row = part.queue[place]
        if how.bounded and _one_too_many(part, row):
            place += 1
            continue
        tested += 1
        if tested > how.max_job_test:
            break
        gpus, length = np.int64(state.job[row].gpus), _length(state, part, row)
        if not exact and (gpus > widest or length > horizon - now):
            place += 1
            continue
        begin, _ = find_in(part.forecast, part.agenda, gpus, length, horizon)
        tick = part.forecast.stretch[begin].tick if begin >= 0 else NEVER
        if tick == now and _start(state, part, place):
            new = _take(part, now, now + length, gpus, horizon)
            part.started[started] = row
            started += 1
            if started == how.max_job_start:
                break
        else:
            place += 1
            new = horizon
            if tick <= now + how.window and _reserves(state, part, row):
                part.reserved[part.job[row].partition] += 1
                last = tick + length
                if last - last % how.resolution > tick:
                    last -= last % how.resolution
                new = _take(part, tick, last, gpus, horizon)
        if new < horizon and not exact:
            horizon, widest = new, widest_before(part.forecast, new)
    for i in range(started):
        expect(part.agenda, part.job[part.started[i]].ends, np.int64(state.job[part.started[i]].gpus))
    return started > 0 and started == how.max_job_start


@kernel
def _take(part, first, last, gpus, horizon):  # type: ignore[no-untyped-def]
    """Take GPUs from one tick to another; the horizon then: where less is left than anybody asks for."""
    forecast, tally = part.forecast, part.forecast.tally[0]
    while forecast.stretch[tally.many - 1].tick < last and go_on(forecast, part.agenda):
        pass
    begin = _split(forecast, first)
    end = _split(forecast, last)
    for i in range(begin, end):
        forecast.stretch[i].free -= gpus
        if forecast.stretch[i].free < part.tally[0].narrowest:
            horizon = min(horizon, forecast.stretch[i].tick)
    return horizon


@kernel
def _split(forecast, tick):  # type: ignore[no-untyped-def]
    """Let a stretch begin at the tick; where it is."""
    low, high = np.int64(0), forecast.tally[0].many
    while low < high:
        middle = (low + high) >> 1
        if forecast.stretch[middle].tick < tick:
            low = middle + 1
        else:
            high = middle
    cut(forecast, low, tick)
    return low


@kernel
def _reserves(state, part, row):  # type: ignore[no-untyped-def]
    """Whether a job that cannot start now gets a reservation."""
    how, job = part.how[0], part.job[row]
    if how.part_count_reserve and part.reserved[job.partition] >= how.part_count_reserve:
        return False
    return job.priority >= how.min_prio_reserve and state.tally[0].now - job.since >= how.min_age_reserve


@kernel
def _one_too_many(part, row):  # type: ignore[no-untyped-def]
    """Whether so many jobs of its partition, user or association have been tested; else it is counted."""
    how, job, tested = part.how[0], part.job[row], part.tested
    of_user = how.partitions + job.user
    of_both = how.partitions + how.users + job.user * how.partitions + job.partition
    of_assoc = how.partitions + how.users + how.users * how.partitions + job.node
    if (
        (how.max_part and tested[job.partition] >= how.max_part)
        or (how.max_user and tested[of_user] >= how.max_user)
        or (how.max_user_part and tested[of_both] >= how.max_user_part)
        or (how.max_assoc and tested[of_assoc] >= how.max_assoc)
    ):
        return True
    tested[job.partition] += 1
    tested[of_user] += 1
    tested[of_both] += 1
    tested[of_assoc] += 1
    return False


@kernel
def run_since(state, part, row, tick):  # type: ignore[no-untyped-def]
    """Let a job run that does so since a tick, before the first event."""
    state.tally[0].now = tick
    come(state, row)
    _join(state, part, row)
    place = 0
    while part.queue[place] != row:
        place += 1
    _start(state, part, place)
    expect(part.agenda, part.job[row].ends, np.int64(state.job[row].gpus))


@kernel
def wait_since(state, part, row, tick):  # type: ignore[no-untyped-def]
    """Let a job wait that does so since a tick, before the first event."""
    state.tally[0].now = tick
    come(state, row)
    _arrive(state, part, row)


@kernel
def look_at(part, now):  # type: ignore[no-untyped-def]
    """Make a whole pass and a backfill cycle at a tick, whatever has happened before; usage counts from there."""
    if part.how[0].fair_weight:
        count_from(part.fair, now)
    part.tally[0].changed = True
    part.tally[0].cut = True
    part.tally[0].next_cycle = now
    part.tally[0].next_whole_pass = now


kernels(SlurmPart, _arrive, _leave, _give, _next_change)


@entry
def advance(state, part, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for this policy."""
    return run(state, part, asks, resumed)
