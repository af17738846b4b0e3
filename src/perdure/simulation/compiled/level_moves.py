"""Moves of jobs in a preemptive policy, compiled: they come, run, sink as they are served, and rise as they wait.

`perdure.scheduling.las.Sinking` defines it. It looks at all jobs after each event; here each running job has a tick at
which it reaches its level's limit (`sinks`), each waiting one a tick at which it has waited long enough (`rises`), and
only those that are due move. That is enough, for what a job was served grows by one a tick while it runs, and stands
still while it waits: the tick is known when it begins to run, or to wait.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.event_heap import NEVER, discard, first_tick, pop, push
from perdure.simulation.compiled.gittins_indices import ignore, watch
from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.levels import (
    ATTAINED,
    count,
    just_sank,
    put_in_line,
    running_key,
    service,
    take_out,
    waiting_key,
)
from perdure.simulation.compiled.running_jobs import enter, withdraw
from perdure.simulation.compiled.state import restart_due


@kernel
def come(state, levels, row):  # type: ignore[no-untyped-def]
    """Queue a job that has come at the end of its level: the level follows from what it was served before."""
    if levels.rules.resets:
        levels.job[row].served = 0
    level, served = 0, service(state, levels, row)
    while level < len(levels.rules.limits) and served >= levels.rules.limits[level]:
        level += 1
    levels.job[row].waited = 0
    levels.job[row].level = level
    _wait_last(state, levels, row)


@kernel
def begin_to_run(state, levels, row):  # type: ignore[no-untyped-def]
    """Move a job from waiting to running, behind its equals there. It no longer rises, and sinks later.

    What it waited counts only once it has been served: a job that has never run is owed nothing.
    """
    take_out(levels, row)
    if levels.rules.knob:
        discard(levels.rises, row)
    if levels.job[row].served:
        levels.job[row].waited += state.tally[0].now - levels.job[row].counted
    levels.job[row].counted = state.tally[0].now + restart_due(state, row)
    levels.order[row].key = running_key(state, levels, row)
    if levels.rules.by >= ATTAINED:
        levels.order[row].label = levels.tally[0].turn
        levels.tally[0].turn += 1
    enter(levels, row)
    _sink_later(state, levels, row)
    watch(state, levels, row)


@kernel
def cease_to_run(state, levels, row):  # type: ignore[no-untyped-def]
    """Drop what is kept of a running job that ends or is preempted; its service is counted up to now.

    It has been withdrawn from the heap of running jobs already.
    """
    count(state, levels, row)
    if len(levels.rules.limits):
        discard(levels.sinks, row)
    ignore(levels, row)


@kernel
def yield_place(state, levels, lifted):  # type: ignore[no-untyped-def]
    """Queue preempted jobs, the first of `lifted` first: ahead of others, unless they just sank.

    In the plain policy running jobs are sorted before waiting ones, and keep that place when they are preempted.
    So they get labels below all others (`front` counts down from 0, `back` up), from the last one on.
    """
    for i in range(lifted - 1, -1, -1):
        row = levels.lifted[i]
        if not just_sank(levels, row):
            levels.tally[0].front -= 1
            _wait(state, levels, row, levels.tally[0].front)
    for i in range(lifted):
        row = levels.lifted[i]
        if just_sank(levels, row):
            _wait_last(state, levels, row)


@kernel
def _wait_last(state, levels, row):  # type: ignore[no-untyped-def]
    """Put a job behind all that wait in its level."""
    levels.tally[0].back += 1
    _wait(state, levels, row, levels.tally[0].back)


@kernel
def _wait(state, levels, row, label):  # type: ignore[no-untyped-def]
    """Put a job among those that wait in its level.

    With promotions it is noted when it rises: after waiting `knob` times what it was served since it was last in the
    top level. One that is due at once is owed its promotion at the next event, as in the plain policy.
    """
    levels.order[row].label = label if levels.rules.by >= ATTAINED else np.int64(state.job[row].came)
    levels.order[row].key = waiting_key(state, levels, row)
    levels.job[row].counted = state.tally[0].now
    put_in_line(levels, row)
    if levels.rules.knob and levels.job[row].level and levels.job[row].served:
        due = state.tally[0].now + np.int64(levels.job[row].served * levels.rules.knob) - levels.job[row].waited
        if due > state.tally[0].now:
            push(levels.rises, row, due)
        else:
            levels.owed[levels.tally[0].many_owed] = row
            levels.tally[0].many_owed += 1


@kernel
def next_move(state, levels):  # type: ignore[no-untyped-def]
    """The tick at which a job sinks or rises next; `NEVER` if none does. The loop then has an instant of its own."""
    tick = NEVER
    if levels.rules.late:
        tick = _late_demotion(state, levels)
    elif len(levels.rules.limits):
        tick = first_tick(levels.sinks)
    return min(tick, first_tick(levels.rises)) if levels.rules.knob else tick


@kernel
def _late_demotion(state, levels):  # type: ignore[no-untyped-def]
    """When the public simulator looks for demotions next.

    It rounds the ticks left down, at least one, and looks at all running jobs, so that this is as slow as it is there.
    """
    least = NEVER
    for i in range(levels.classes[0].many):
        row = levels.running[i].row
        level = np.int64(levels.job[row].level)
        if level < len(levels.rules.limits):
            width = state.job[row].gpus if levels.rules.widths else 1
            served = levels.job[row].served + max(np.int64(0), state.tally[0].now - levels.job[row].counted)
            least = min(least, max(np.int64(1), (levels.rules.limits[level] - served) // width))
    return state.tally[0].now + least if least < NEVER else NEVER


@kernel
def sink(state, levels):  # type: ignore[no-untyped-def]
    """Take running jobs that reached their level's limit out, into `moved` as they came; how many they are.

    They go down as many levels as their service says; in the public simulator one level an event.
    """
    many = 0
    if not len(levels.rules.limits):
        return many
    while first_tick(levels.sinks) <= state.tally[0].now:
        many = _insert(state, levels, many, pop(levels.sinks))
    for i in range(many):
        row = np.int64(levels.moved[i])
        withdraw(levels, row)
        count(state, levels, row)
        served, level = service(state, levels, row), np.int64(levels.job[row].level) + 1
        while not levels.rules.late and level < len(levels.rules.limits) and served >= levels.rules.limits[level]:
            level += 1
        levels.job[row].level = level
    return many


@kernel
def come_down(state, levels, sinking):  # type: ignore[no-untyped-def]
    """Put the jobs in `moved` among the running ones of their new level, in this pass behind all that wait there.

    The plain policy appends a job that sinks to its new queue. So its label is above all that this pass can give: at
    most `total_gpus` jobs start in it, each of which takes one turn.
    """
    if levels.rules.by >= ATTAINED:
        levels.tally[0].sunk = levels.tally[0].turn + levels.total_gpus  # jobs started in this pass get turns below
    for i in range(sinking):
        row = np.int64(levels.moved[i])
        levels.order[row].key = running_key(state, levels, row)
        levels.order[row].label = levels.tally[0].sunk + i
        enter(levels, row)
        _sink_later(state, levels, row)


@kernel
def settle_turns(levels, sinking):  # type: ignore[no-untyped-def]
    """After a pass let those that came down be equals of the others: labels go on from the last of them."""
    if sinking:
        levels.tally[0].turn = levels.tally[0].sunk + sinking


@kernel
def rise(state, levels):  # type: ignore[no-untyped-def]
    """Move waiting jobs to the top that waited long enough, in the order in which they came.

    What they were served, and how long they waited, is forgotten: both count from the last time in the top level.
    ``state.job.promoted`` counts it; what the job has run of its attempt stays.
    """
    if not levels.rules.knob:
        return
    many = 0
    for i in range(levels.tally[0].many_owed):
        many = _insert(state, levels, many, np.int64(levels.owed[i]))
    levels.tally[0].many_owed = 0
    while first_tick(levels.rises) <= state.tally[0].now:
        many = _insert(state, levels, many, pop(levels.rises))
    for i in range(many):
        row = np.int64(levels.moved[i])
        take_out(levels, row)
        levels.job[row].served = 0
        levels.job[row].waited = 0
        levels.job[row].level = 0
        state.job[row].promoted += 1
        _wait_last(state, levels, row)


@kernel
def _sink_later(state, levels, row):  # type: ignore[no-untyped-def]
    """Note when a running job, its service counted up to now, reaches its level's limit.

    The first whole tick at which it has: ``from + ceil((limit - service) / width)``, written as a floor of the
    negative, where it works from now on, or from the end of its restart. One that is past the limit already sinks next.
    """
    level = np.int64(levels.job[row].level)
    if level < len(levels.rules.limits):
        width = state.job[row].gpus if levels.rules.widths else 1
        beyond = service(state, levels, row) - levels.rules.limits[level]
        works_from = levels.job[row].counted if beyond < 0 else state.tally[0].now
        push(levels.sinks, row, works_from - beyond // width)


@kernel
def _insert(state, levels, many, row):  # type: ignore[no-untyped-def]
    """Put a job into `moved`, in the order in which jobs came; how many there are then.

    They are few, so it is a plain insertion.
    """
    place = many
    while place > 0 and state.job[levels.moved[place - 1]].came > state.job[row].came:
        levels.moved[place] = levels.moved[place - 1]
        place -= 1
    levels.moved[place] = row
    return many + 1
