"""Policies that give all GPUs anew after each event, compiled: shortest remaining first, least attained service.

Jobs stand in levels. A level's running jobs are an array in the order of precedence; its waiting jobs are in skew
heaps, one for each size of gang, so that the next one that fits is found without looking at those that do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.heaps import (
    add,
    discard,
    empty_heap,
    empty_skew,
    first_tick,
    holds,
    pop,
    precedes,
    push,
)
from perdure.simulation.compiled.heaps import remove as unlink
from perdure.simulation.compiled.kernel import FLAG, LONG, SHORT, SHORT_NONE, Records, kernel, records
from perdure.simulation.compiled.places import LADDER, forget, is_kept_off, lift, next_rung, put_back, take
from perdure.simulation.compiled.state import ASKS, DONE, NEVER, due_arrival, finish, heed, remaining, run, stop
from perdure.simulation.workload import Workload

REMAINING, REMAINING_SERVICE, GPUS, ATTAINED, GITTINS = range(5)


class Rules(NamedTuple):
    """What the policy is."""

    by: int
    widths: bool  # service counts GPUs
    knob: float
    late: bool  # demotions are looked for when the public simulator does
    resets: bool
    limits: NDArray[np.int64]  # service at which a job leaves each level but the last
    steps: NDArray[np.int64]  # Gittins: services in GPU-ticks at which the index changes
    ranks: NDArray[np.float64]  # the index below each, and above the last


class Levels(NamedTuple):
    """The jobs in their levels, and the scratch space of a pass."""

    rules: Rules
    total_gpus: int
    job: Records  # see `levels_of`
    sizes: Records  # of gangs, ascending: GPUs, and whether no place was found for it in this pass
    order: Records  # skew heaps of waiting jobs
    heads: NDArray[np.int32]  # (levels, sizes): the first waiting job; -1 for none
    running: NDArray[np.int32]  # (levels, twice the GPUs): running jobs
    many: NDArray[np.int64]  # of each level: how many they are
    sinks: Records  # heap of running jobs by the tick of their next demotion
    rises: Records  # heap of waiting jobs by the tick of their promotion
    rungs: Records  # heap of waiting jobs by the tick at which they may look one rung looser
    tally: Records  # one record


def levels_of(jobs: Workload, rules: Rules, total_gpus: int, ladder: bool) -> Levels:
    """Levels without jobs."""
    n, levels = len(jobs), len(rules.limits) + 1
    widths, size_of = np.unique(jobs.gpus, return_inverse=True)
    job = records(
        n,
        size_of=SHORT,  # in `sizes`
        level=SHORT_NONE,  # -1 while it is not there
        served=LONG,  # ticks run since last in the top level, up to `counted`
        waited=LONG,  # ticks waited since then, up to `counted`
        counted=LONG,
        key=(np.float64, 0),  # of a running job: the least first
        until=LONG,  # Gittins: when the key of a running job changes
        spot=SHORT,  # in `running`, of a running job: an entry elsewhere is out of date
        sank=LONG,  # the pass before which it came down to its level: in that one it is behind its equals
        lifted=FLAG,
        owed=SHORT,  # not of this job, as the next two: lists of rows. To be promoted at the next event
        moved=SHORT,  # changing level now
        tried=SHORT,  # set aside in this pass
    )
    job["size_of"] = size_of
    sizes = records(len(widths), gpus=LONG, closed=FLAG)
    sizes["gpus"] = widths
    return Levels(
        rules,
        total_gpus,
        job,
        sizes,
        empty_skew(n, _then(jobs, rules)),
        np.full((levels, len(widths)), -1, np.int32),
        np.zeros((levels, 2 * min(n, total_gpus) + 1), np.int32),
        np.zeros(levels, np.int64),
        empty_heap(n if len(rules.limits) else 0),
        empty_heap(n if rules.knob else 0),
        empty_heap(n if ladder else 0),
        records(1, many_owed=LONG, front=LONG, back=LONG, passes=LONG),  # `front`, `back`: extreme labels
    )


def _then(jobs: Workload, rules: Rules) -> NDArray[np.int64]:
    """What decides between equal keys, before the order of arrival does."""
    if rules.by != GITTINS:
        return np.zeros(len(jobs), np.int64)
    return jobs.submit if rules.late else np.arange(len(jobs))


@kernel
def advance(state, levels, asks, resumed):  # type: ignore[no-untyped-def]
    """Go on until nothing is left to happen, or until attempts failed about which somebody must be asked."""
    events = -1
    while True:
        if not resumed:
            now = _next_event(state, levels)
            if now == NEVER:
                return DONE
            state.tally[0].now = now
            events = state.tally[0].events
            while first_tick(state.ends, NEVER) <= now:
                _leave(state, levels, asks)
            if state.questions.tally[0].many:
                return ASKS
        else:
            heed(state)
        resumed = False
        row = due_arrival(state)
        while row >= 0:
            _come(state, levels, row)
            row = due_arrival(state)
        if state.tally[0].events == events:
            state.tally[0].events += 1
        levels.tally[0].passes += 1
        sinking = _sink(state, levels)
        if not _is_easy(state, levels, sinking):
            _refresh_all(state, levels)
        _come_down(state, levels, sinking)
        _rise(state, levels)
        _give(state, levels)


@kernel
def _next_event(state, levels):  # type: ignore[no-untyped-def]
    now = min(first_tick(state.ends, NEVER), first_tick(state.returns, NEVER))
    i = state.tally[0].arrived
    if i < len(state.job):
        now = min(now, state.job[i].submit)
    if levels.rules.late:
        now = min(now, _late_demotion(state, levels))
    elif len(levels.rules.limits):
        now = min(now, first_tick(levels.sinks, NEVER))
    if levels.rules.knob:
        now = min(now, first_tick(levels.rises, NEVER))
    if state.places.kind == LADDER:
        while first_tick(levels.rungs, NEVER) <= state.tally[0].now:
            row = pop(levels.rungs)
            _climb_later(state, levels, row)
        now = min(now, first_tick(levels.rungs, NEVER))
    return now


@kernel
def _climb_later(state, levels, row):  # type: ignore[no-untyped-def]
    """Note when a refused job may look one rung looser."""
    tick = next_rung(state.places, row, state.tally[0].now, NEVER)
    if tick < NEVER and not holds(levels.rungs, row):
        push(levels.rungs, row, tick)


@kernel
def _late_demotion(state, levels):  # type: ignore[no-untyped-def]
    """When the public simulator looks for demotions next."""
    least = int(NEVER)
    for level in range(len(levels.rules.limits)):
        for i in range(levels.many[level]):
            row = np.int64(levels.running[level, i])
            if levels.job[row].spot != i or levels.job[row].level != level or state.job[row].resumed < 0:
                continue
            width = state.job[row].gpus if levels.rules.widths else 1
            served = levels.job[row].served + state.tally[0].now - levels.job[row].counted
            least = min(least, max(1, (levels.rules.limits[level] - served) // width))
    return NEVER if least == NEVER else state.tally[0].now + least


@kernel
def _leave(state, levels, asks):  # type: ignore[no-untyped-def]
    """End the attempt of the first job in `ends`. It is dropped from `running` by the next sort."""
    row = pop(state.ends)
    levels.job[row].served += state.tally[0].now - levels.job[row].counted
    if len(levels.rules.limits):
        discard(levels.sinks, row)
    levels.job[row].level = -1
    finish(state, row, asks)


@kernel
def _service(state, levels, row):  # type: ignore[no-untyped-def]
    return levels.job[row].served * (state.job[row].gpus if levels.rules.widths else 1)


@kernel
def _come(state, levels, row):  # type: ignore[no-untyped-def]
    if levels.rules.resets:
        levels.job[row].served = 0
    level, service = 0, _service(state, levels, row)
    while level < len(levels.rules.limits) and service >= levels.rules.limits[level]:
        level += 1
    levels.job[row].waited = 0
    levels.job[row].level = level
    levels.tally[0].back += 1
    _wait(state, levels, row, levels.tally[0].back)


@kernel
def _wait(state, levels, row, label):  # type: ignore[no-untyped-def]
    """Put a job among those that wait in its level."""
    by = levels.rules.by
    if by < ATTAINED:
        label = state.job[row].came
    levels.order[row].label = label
    levels.order[row].key = _key(state, levels, row)
    levels.job[row].counted = state.tally[0].now
    _in(levels, row)
    if levels.rules.knob and levels.job[row].level and levels.job[row].served:
        due = state.tally[0].now + np.int64(levels.job[row].served * levels.rules.knob) - levels.job[row].waited
        if due > state.tally[0].now:
            push(levels.rises, row, due)
        else:
            levels.job[levels.tally[0].many_owed].owed = row
            levels.tally[0].many_owed += 1


@kernel
def _key(state, levels, row):  # type: ignore[no-untyped-def]
    """Precedence within a level, the least first; a running job's service must be counted up to now."""
    by = levels.rules.by
    if by == REMAINING:
        return float(remaining(state, row))
    if by == REMAINING_SERVICE:
        return float(remaining(state, row) * state.job[row].gpus)
    if by == GPUS:
        return float(state.job[row].gpus)
    if by == ATTAINED:
        return 0.0
    attained = levels.job[row].served * state.job[row].gpus
    i = _steps_taken(levels.rules.steps, attained)
    levels.job[row].until = NEVER
    if i < len(levels.rules.steps):
        levels.job[row].until = state.tally[0].now - (attained - levels.rules.steps[i]) // state.job[row].gpus
    return -levels.rules.ranks[i]


@kernel
def _steps_taken(steps, attained):  # type: ignore[no-untyped-def]
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) >> 1
        if steps[middle] <= attained:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _refresh_all(state, levels):  # type: ignore[no-untyped-def]
    """Drop jobs that run no longer, or not in this level, count the others' keys anew and put them in order."""
    for level in range(len(levels.running)):
        kept = 0
        for i in range(levels.many[level]):
            row = np.int64(levels.running[level, i])
            if levels.job[row].spot == i and levels.job[row].level == level and state.job[row].resumed >= 0:
                _refresh(state, levels, row)
                _place(state, levels, level, kept, row)
                kept += 1
        levels.many[level] = kept


@kernel
def _is_easy(state, levels, sinking):  # type: ignore[no-untyped-def]
    """Whether all that wait fit beside all that run, so that nobody looks at the order of the running ones."""
    tally = state.tally[0]
    if tally.waiting_gpus > state.places.tally[0].total_free or (levels.rules.late and levels.rules.by == GITTINS):
        return False
    for level in range(len(levels.running)):
        if levels.many[level] + sinking + tally.waiting >= levels.running.shape[1]:
            return False
    return True


@kernel
def _just_sank(levels, row):  # type: ignore[no-untyped-def]
    return levels.job[row].sank == levels.tally[0].passes


@kernel
def _place(state, levels, level, many, row):  # type: ignore[no-untyped-def]
    """Put a job among the first `many` running ones of a level, behind its equals."""
    while many > 0 and _after(state, levels, np.int64(levels.running[level, many - 1]), row):
        other = levels.running[level, many - 1]
        if levels.job[other].level == level and levels.job[other].spot == many - 1:
            levels.job[other].spot = many
        levels.running[level, many] = other
        many -= 1
    levels.running[level, many] = row
    levels.job[row].spot = many


@kernel
def _refresh(state, levels, row):  # type: ignore[no-untyped-def]
    by = levels.rules.by
    if by < GPUS:
        levels.job[row].key = _key(state, levels, row)
    elif by == GITTINS and levels.job[row].until <= state.tally[0].now:
        _count(state, levels, row)
        levels.job[row].key = _key(state, levels, row)


@kernel
def _after(state, levels, a, b):  # type: ignore[no-untyped-def]
    """Whether running job a comes strictly after running job b."""
    if levels.job[a].key != levels.job[b].key:
        return levels.job[a].key > levels.job[b].key
    if levels.rules.by < ATTAINED:
        return state.job[a].came > state.job[b].came
    if levels.order[a].then != levels.order[b].then:
        return levels.order[a].then > levels.order[b].then
    return _just_sank(levels, a) and not _just_sank(levels, b)


@kernel
def _count(state, levels, row):  # type: ignore[no-untyped-def]
    """Count a running job's service up to now."""
    levels.job[row].served += state.tally[0].now - levels.job[row].counted
    levels.job[row].counted = state.tally[0].now


@kernel
def _sink(state, levels):  # type: ignore[no-untyped-def]
    """Give running jobs that reached their level's limit a lower one, into `moved` as they came; how many they are."""
    many = 0
    if not len(levels.rules.limits):
        return many
    while first_tick(levels.sinks, NEVER) <= state.tally[0].now:
        many = _insert(state, levels, many, pop(levels.sinks))
    for i in range(many):
        row = np.int64(levels.job[i].moved)
        _count(state, levels, row)
        service, level = _service(state, levels, row), np.int64(levels.job[row].level) + 1
        while not levels.rules.late and level < len(levels.rules.limits) and service >= levels.rules.limits[level]:
            level += 1
        levels.job[row].level = level
    return many


@kernel
def _come_down(state, levels, sinking):  # type: ignore[no-untyped-def]
    """Put the jobs in `moved` among the running ones of their new level."""
    for i in range(sinking):
        row = np.int64(levels.job[i].moved)
        level = np.int64(levels.job[row].level)
        levels.job[row].sank = levels.tally[0].passes
        levels.job[row].key = _key(state, levels, row)
        _place(state, levels, level, levels.many[level], row)
        levels.many[level] += 1
        _sink_later(state, levels, row)


@kernel
def _insert(state, levels, many, row):  # type: ignore[no-untyped-def]
    """Put a job into `moved`, in the order in which jobs came; how many there are then."""
    place = many
    while place > 0 and state.job[levels.job[place - 1].moved].came > state.job[row].came:
        levels.job[place].moved = levels.job[place - 1].moved
        place -= 1
    levels.job[place].moved = row
    return many + 1


@kernel
def _sink_later(state, levels, row):  # type: ignore[no-untyped-def]
    """Note when a running job, its service counted up to now, reaches its level's limit."""
    level = np.int64(levels.job[row].level)
    if level < len(levels.rules.limits):
        width = state.job[row].gpus if levels.rules.widths else 1
        beyond = _service(state, levels, row) - levels.rules.limits[level]
        push(levels.sinks, row, state.tally[0].now - beyond // width)


@kernel
def _rise(state, levels):  # type: ignore[no-untyped-def]
    """Move waiting jobs to the top that waited long enough, in the order in which they came."""
    if not levels.rules.knob:
        return
    many = 0
    for i in range(levels.tally[0].many_owed):
        many = _insert(state, levels, many, np.int64(levels.job[i].owed))
    levels.tally[0].many_owed = 0
    while first_tick(levels.rises, NEVER) <= state.tally[0].now:
        many = _insert(state, levels, many, pop(levels.rises))
    for i in range(many):
        row = np.int64(levels.job[i].moved)
        _out(levels, row)
        levels.job[row].served = 0
        levels.job[row].waited = 0
        levels.job[row].level = 0
        state.job[row].promoted += 1
        levels.tally[0].back += 1
        _wait(state, levels, row, levels.tally[0].back)


@kernel
def _first_waiting(levels, level, free):  # type: ignore[no-untyped-def]
    """The first waiting job of a level that needs no more than `free`, of a size that is not closed; -1 for none."""
    best = np.int64(-1)
    for size in range(len(levels.sizes)):
        if levels.sizes[size].gpus > free:
            break
        row = np.int64(levels.heads[level, size])
        if row >= 0 and not levels.sizes[size].closed and (best < 0 or precedes(levels.order, row, best)):
            best = row
    return best


@kernel
def _runs_before(levels, runner, waiter):  # type: ignore[no-untyped-def]
    """Whether a running job comes before a waiting one: among equals it does, unless it has just sunk."""
    if levels.job[runner].key != levels.order[waiter].key:
        return levels.job[runner].key < levels.order[waiter].key
    if levels.order[runner].then != levels.order[waiter].then:
        return levels.order[runner].then < levels.order[waiter].then
    return not _just_sank(levels, runner)


@kernel
def _give(state, levels):  # type: ignore[no-untyped-def]
    """One pass, as `Passes` does it: choose by counting, lift who is not chosen, then start and put back in order."""
    if state.tally[0].waiting:
        for size in range(len(levels.sizes)):
            levels.sizes[size].closed = False
        lifted, chosen = 0, 1
        if state.tally[0].waiting_gpus > state.places.tally[0].total_free:
            lifted, chosen = _choose(state, levels)
        if lifted:
            _lift_all(state, levels)
        if lifted or chosen:
            for level in range(len(levels.running)):
                _start(state, levels, level, lifted)


@kernel
def _choose(state, levels):  # type: ignore[no-untyped-def]
    """Mark the running jobs that are not chosen. How many those are, and how many waiting jobs were chosen."""
    free, lifted, chosen = levels.total_gpus, 0, 0
    for level in range(len(levels.running)):
        i, since = 0, chosen
        while True:
            waiter = _first_waiting(levels, level, free)
            row = np.int64(levels.running[level, i])
            if i < levels.many[level] and (waiter < 0 or _runs_before(levels, row, waiter)):
                i += 1
                if state.job[row].gpus <= free:
                    free -= state.job[row].gpus
                else:
                    levels.job[row].lifted = True
                    lifted += 1
            elif waiter >= 0:
                free -= state.job[waiter].gpus
                levels.job[chosen].tried = waiter
                chosen += 1
                _out(levels, waiter)
            else:
                break
        for j in range(since, chosen):
            _in(levels, np.int64(levels.job[j].tried))
    return lifted, chosen


@kernel
def _lift_all(state, levels):  # type: ignore[no-untyped-def]
    for level in range(len(levels.running)):
        for i in range(levels.many[level]):
            row = np.int64(levels.running[level, i])
            if levels.job[row].lifted:
                lift(state.places, row, state.job[row].gpus)


@kernel
def _start(state, levels, level, lifted):  # type: ignore[no-untyped-def]
    """Give GPUs in order: lifted jobs theirs, if they are still free, waiting jobs any."""
    end, tried = levels.many[level], 0
    i = 0 if lifted else end
    while True:
        while i < end and not levels.job[levels.running[level, i]].lifted:
            i += 1
        waiter = _first_waiting(levels, level, state.places.tally[0].total_free)
        row = np.int64(levels.running[level, min(i, end)])
        if i < end and (waiter < 0 or _runs_before(levels, row, waiter)):
            i += 1
            levels.job[row].lifted = not put_back(state.places, row, state.job[row].gpus)
        elif waiter < 0:
            break
        elif take(state.places, waiter, state.job[waiter].gpus, state.tally[0].now):
            _run(state, levels, waiter, level)
        elif state.places.kind == LADDER or is_kept_off(state.places, waiter):  # the next of its size may find a place
            _climb_later(state, levels, waiter)
            levels.job[tried].tried = waiter
            tried += 1
            _out(levels, waiter)
        else:
            levels.sizes[levels.job[waiter].size_of].closed = True
    for j in range(tried):
        _in(levels, np.int64(levels.job[j].tried))
    if lifted:
        _preempt(state, levels, level, end)
    if levels.rules.by >= ATTAINED:
        for many in range(end, levels.many[level]):
            _place(state, levels, level, many, np.int64(levels.running[level, many]))


@kernel
def _out(levels, row):  # type: ignore[no-untyped-def]
    """Take a waiting job out of its heap, for a while."""
    level, size = np.int64(levels.job[row].level), np.int64(levels.job[row].size_of)
    levels.heads[level, size] = unlink(levels.order, np.int64(levels.heads[level, size]), row)


@kernel
def _in(levels, row):  # type: ignore[no-untyped-def]
    """Put a waiting job into its heap."""
    level, size = np.int64(levels.job[row].level), np.int64(levels.job[row].size_of)
    levels.heads[level, size] = add(levels.order, np.int64(levels.heads[level, size]), row)


@kernel
def _run(state, levels, row, level):  # type: ignore[no-untyped-def]
    """Let a waiting job run that has just been given its GPUs; it is behind all others for the time being."""
    _out(levels, row)
    if levels.rules.knob:
        discard(levels.rises, row)
    if state.places.kind == LADDER:
        discard(levels.rungs, row)
    if levels.job[row].served:
        levels.job[row].waited += state.tally[0].now - levels.job[row].counted
    levels.job[row].counted = state.tally[0].now
    run(state, row)
    levels.job[row].key = _key(state, levels, row)
    levels.running[level, levels.many[level]] = row
    levels.job[row].spot = levels.many[level]
    levels.many[level] += 1
    if len(levels.rules.limits):
        _sink_later(state, levels, row)


@kernel
def _preempt(state, levels, level, end):  # type: ignore[no-untyped-def]
    """Let those of the first `end` running jobs wait that are still lifted: ahead of others, unless they just sank."""
    for i in range(end):
        row = np.int64(levels.running[level, i])
        levels.tally[0].front -= levels.job[row].lifted and not _just_sank(levels, row)
    front = levels.tally[0].front
    for i in range(end):
        row = np.int64(levels.running[level, i])
        if not levels.job[row].lifted:
            continue
        levels.job[row].lifted = False
        _count(state, levels, row)
        if len(levels.rules.limits):
            discard(levels.sinks, row)
        discard(state.ends, row)
        stop(state, row)
        forget(state.places, row)
        state.tally[0].waiting += 1
        state.tally[0].waiting_gpus += state.job[row].gpus
        state.job[row].preempted += 1
        if _just_sank(levels, row):
            levels.tally[0].back += 1
            _wait(state, levels, row, levels.tally[0].back)
        else:
            front += 1
            _wait(state, levels, row, front)
