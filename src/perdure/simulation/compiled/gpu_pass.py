"""One pass of a preemptive policy, compiled: which jobs are to run, which must yield, and which GPUs they get.

It does what `Passes` does, without looking at jobs whose lot cannot change. Jobs are chosen in the order of precedence
as long as there are GPUs for them, and a job that does not fit is passed over. So of the running jobs only the last
ones can lose their GPUs, and only as many as a waiting job that comes before them can use; and of the waiting ones of
one size the first is chosen before the second.

A pass looks at the heads of all sizes for each job that it chooses or lifts; the plain pass looks at all jobs that
wait or run.
"""

from __future__ import annotations

import numpy as np

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.gpu_places import forget, lift, put_back
from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.level_moves import begin_to_run, cease_to_run, yield_place
from perdure.simulation.compiled.levels import first_waiting, put_in_line, runs_before, take_out
from perdure.simulation.compiled.placements import looks_for_itself
from perdure.simulation.compiled.running_jobs import enter, last_running, withdraw
from perdure.simulation.compiled.state import preempt, start


@kernel
def give(state, levels):  # type: ignore[no-untyped-def]
    """Choose by counting GPUs, lift who is not chosen, then start and put back in order.

    The same three steps as `Passes._give_anew`. Where GPUs have places, a job that was chosen may still find none.
    """
    for size in range(len(levels.sizes)):
        levels.sizes[size].closed = False
    levels.tally[0].many_lifted = 0
    if all_fit(state) or _choose(state, levels) or levels.tally[0].many_lifted:
        for i in range(levels.tally[0].many_lifted):
            lift(state.places, levels.lifted[i], np.int64(state.job[levels.lifted[i]].gpus))
        _start(state, levels)


@kernel
def all_fit(state):  # type: ignore[no-untyped-def]
    """Whether all waiting jobs fit next to all running ones, so that nobody must yield and nothing must be chosen."""
    return state.tally[0].waiting_gpus <= state.places.tally[0].total_free


@kernel
def _choose(state, levels):  # type: ignore[no-untyped-def]
    """Put the running jobs that are not chosen into `lifted`. Whether a waiting one was chosen.

    `free` is what is left for the jobs that come next if all running jobs are chosen but those in the margin and those
    lifted. Nobody from `too_wide` GPUs on is chosen any more: this many could not be had for one that came earlier, and
    from there on ever fewer can.

    Goes through waiting jobs in the order of precedence. Running ones that come behind the present one are put into the
    margin, the last first, until it fits; those of the margin that come before the next one are chosen or lifted for
    good. `margin` is a stack: its top is the first in precedence of those withdrawn.
    """
    free, too_wide, margin, chosen = state.places.tally[0].total_free, NEVER, 0, 0
    for level in range(len(levels.heads)):
        while True:
            waiter = first_waiting(levels, level, too_wide)
            if waiter < 0:
                break
            while margin and runs_before(state, levels, levels.margin[margin - 1], waiter):
                margin -= 1
                free = _keep_or_lift(state, levels, levels.margin[margin], free)
            gpus = np.int64(state.job[waiter].gpus)
            while free < gpus:
                row = last_running(state, levels)
                if row < 0 or runs_before(state, levels, row, waiter):
                    break
                withdraw(levels, row)
                levels.margin[margin] = row
                margin += 1
                free += state.job[row].gpus
            if free < gpus:
                too_wide = gpus
                continue
            free -= gpus
            levels.chosen[chosen] = waiter
            chosen += 1
            take_out(levels, waiter)
    while margin:
        margin -= 1
        free = _keep_or_lift(state, levels, levels.margin[margin], free)
    for i in range(chosen):
        put_in_line(levels, levels.chosen[i])
    return chosen > 0


@kernel
def _keep_or_lift(state, levels, row, free):  # type: ignore[no-untyped-def]
    """Choose a job of the margin if it fits; what then is free.

    One that does not is lifted, in the order of precedence.
    """
    if state.job[row].gpus <= free:
        enter(levels, row)
        return free - state.job[row].gpus
    levels.lifted[levels.tally[0].many_lifted] = row
    levels.tally[0].many_lifted += 1
    return free


@kernel
def _start(state, levels):  # type: ignore[no-untyped-def]
    """Give GPUs in order: lifted jobs theirs, if they are still free, waiting jobs any.

    A size of which one job found no place is closed for the rest of the pass, unless each job looks for itself; those
    that did so without success are put aside, level by level, and back into line afterwards.

    Only placements make this more than counting: fragments may be free in the sum and useless to a gang.
    """
    i, yielding = 0, 0
    for level in range(len(levels.heads)):
        aside = 0
        while True:
            waiter = first_waiting(levels, level, state.places.tally[0].total_free + 1)
            if i < levels.tally[0].many_lifted and _is_next(state, levels, levels.lifted[i], level, waiter):
                row = levels.lifted[i]
                i += 1
                if put_back(state.places, row, np.int64(state.job[row].gpus)):
                    enter(levels, row)
                else:
                    levels.lifted[yielding] = row
                    yielding += 1
            elif waiter < 0:
                break
            elif start(state, waiter):
                begin_to_run(state, levels, waiter)
            elif looks_for_itself(state.places, waiter):
                levels.aside[aside] = waiter
                aside += 1
                take_out(levels, waiter)
            else:
                levels.sizes[levels.job[waiter].size_of].closed = True
        for j in range(aside):
            put_in_line(levels, np.int64(levels.aside[j]))
    _preempt(state, levels, yielding)


@kernel
def _is_next(state, levels, row, level, waiter):  # type: ignore[no-untyped-def]
    """Whether a lifted job comes before the first waiting one of this level that may fit."""
    if waiter < 0:
        return levels.job[row].level == level
    return runs_before(state, levels, row, waiter)


@kernel
def _preempt(state, levels, yielding):  # type: ignore[no-untyped-def]
    """Preempt the first `yielding` of `lifted`, whose GPUs others have now. Their service is counted up to now."""
    for i in range(yielding):
        row = levels.lifted[i]
        forget(state.places, row)
        cease_to_run(state, levels, row)
        preempt(state, row)
    yield_place(state, levels, yielding)
