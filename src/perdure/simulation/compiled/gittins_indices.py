"""The Gittins indices of running jobs, compiled. They change as jobs are served, from step to step.

A job that waits is not served, so that its index stands still. Of each running one it is kept at which tick it reaches
the next step (`until`), and only those that have are re-sorted: before a pass, not when it happens, as nobody looks
in between. A pass costs one comparison for each running job, and a heap operation for each that has passed a step.

Source of the index: `perdure.scheduling.gittins`.
"""

from __future__ import annotations

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.levels import GITTINS, steps_taken
from perdure.simulation.compiled.running_jobs import enter, is_out, last_running, resort, withdraw


@kernel
def watch(state, levels, row):  # type: ignore[no-untyped-def]
    """Follow the index of a job that begins to run, its service being counted.

    Its service at a tick is ``(tick - origin) * gpus``, whatever was counted meanwhile: `origin` is the tick at which
    it would have begun, had it run all of its service without a break. While it restarts its index stands still.
    """
    if levels.rules.by != GITTINS:
        return
    i = levels.tally[0].watched
    levels.tally[0].watched += 1
    one = levels.indices[i]
    one.row = row
    one.gpus = state.job[row].gpus
    one.origin = levels.job[row].counted - levels.job[row].served
    one.step = steps_taken(state, levels, row)
    one.until = _until(levels, one)
    levels.job[row].watched = i


@kernel
def ignore(levels, row):  # type: ignore[no-untyped-def]
    """Follow the index of a job no longer; the last one of the list takes its place."""
    if levels.rules.by != GITTINS:
        return
    levels.tally[0].watched -= 1
    one, last = levels.indices[levels.job[row].watched], levels.indices[levels.tally[0].watched]
    levels.job[last.row].watched = levels.job[row].watched
    one.row = last.row
    one.gpus = last.gpus
    one.origin = last.origin
    one.step = last.step
    one.until = last.until


@kernel
def refresh(state, levels):  # type: ignore[no-untyped-def]
    """Bring the indices of running jobs up to date, and their order.

    Those in the margin of a pass are not in the order.
    """
    if levels.rules.by != GITTINS:
        return
    if levels.rules.late:
        _keep_order(state, levels)
    now = state.tally[0].now
    for i in range(levels.tally[0].watched):
        one = levels.indices[i]
        if one.until > now:
            continue
        while one.step < len(levels.rules.steps) and levels.rules.steps[one.step] <= (now - one.origin) * one.gpus:
            one.step += 1
        one.until = _until(levels, one)
        if not is_out(levels, one.row):
            resort(levels, one.row, levels.job[one.row].level * levels.stride + levels.rules.ranks[one.step])


@kernel
def _until(levels, one):  # type: ignore[no-untyped-def]
    """The tick at which a running job reaches its next step; `NEVER` behind the last one.

    Rounded up: it must be reached.
    """
    if one.step == len(levels.rules.steps):
        return NEVER
    return one.origin - (-levels.rules.steps[one.step]) // one.gpus


@kernel
def _keep_order(state, levels):  # type: ignore[no-untyped-def]
    """Keep running jobs that come to tie in the order of the last pass, as in the public simulator's lists.

    Takes all of them out, the last first, and relabels them. Only replays like Tiresias' simulator pay for it.
    """
    many = 0
    while levels.classes[0].many:
        levels.margin[many] = last_running(state, levels)
        withdraw(levels, levels.margin[many])
        many += 1
    for i in range(many):
        levels.order[levels.margin[i]].label = levels.tally[0].turn + many - i
        enter(levels, levels.margin[i])
    levels.tally[0].turn += many + 1
