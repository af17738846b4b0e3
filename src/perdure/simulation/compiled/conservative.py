"""Conservative backfilling that keeps its promises, compiled (`perdure.scheduling.backfill.Conservative` defines it).

What will be free is a step function of the tick, kept from pass to pass: running jobs up to their expected ends and
waiting jobs from their promised starts on. A job that starts as promised changes nothing in it, and one that ends as
expected neither. A waiting job is moved forward in place: before its own promise only the others stand, so that a look
at what is free up to there tells whether it can be earlier. It can only begin before what has come free since the last
look ends: where jobs run as long as expected nobody is looked at again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.backfill import Conservative
from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.expected_ends import Agenda, empty_agenda, expect, strike
from perdure.simulation.compiled.free_profile import (
    Profile,
    begin_of,
    earliest,
    empty_profile,
    forget_before,
    take,
)
from perdure.simulation.compiled.kernel import FLAG, LONG, Records, entry, kernel, records
from perdure.simulation.compiled.linked_lists import append, empty_chains, no_links, unlink
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.state import start
from perdure.simulation.workload import Workload


class Promises(NamedTuple):
    """The waiting jobs in the order in which they came, and what they were promised.

    Kept true between passes: at every tick from the first stretch on, what is free is the cluster less the running jobs
    that are expected to run then, and less the waiting jobs that were promised to. Two stretches that meet differ.
    """

    walltime: NDArray[np.int64]  # of each job, 0 where there is none
    size: NDArray[np.int64]  # of each job: the number of its GPUs among those that jobs ask for
    begin: NDArray[np.int64]  # the promised start of each waiting job; `NEVER` where there is none yet
    links: Records
    waiting: Records  # one chain
    agenda: Agenda  # expected ends of running jobs
    profile: Profile  # what is free
    tally: Records  # one record


def prepare(policy: Conservative, jobs: Workload, total_gpus: int) -> Promises:  # noqa: ARG001
    """Nobody waits, nobody runs, all is free."""
    n = len(jobs)
    most = min(n, total_gpus)
    tally = records(
        1,
        overdue=LONG,  # GPUs of jobs over their limits
        ended=FLAG,  # a job has, since the last pass
        broken=FLAG,  # more has been promised than there is
        next=LONG,  # promised start that is to come
        late=FLAG,  # somebody who was due has not started
        freed=LONG,  # up to this tick something has come free since the last pass began
    )
    tally[0]["next"] = NEVER
    begin, profile = np.full(n, NEVER), empty_profile(most + 2 * n + 4, total_gpus)
    size = np.unique(jobs.gpus, return_inverse=True)[1].astype(np.int64)
    return Promises(jobs.walltime, size, begin, no_links(n), empty_chains(1), empty_agenda(most), profile, tally)


@kernel
def _arrive(state, part, row):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """A job that came, or came back, is promised nothing yet."""
    part.begin[row] = NEVER
    append(part.links, part.waiting[0], row)


@kernel
def _leave(state, part, row):  # type: ignore[no-untyped-def]
    """A running job's end is no longer expected; if it ends early, its GPUs are free until then."""
    now, gpus = state.tally[0].now, np.int64(state.job[row].gpus)
    end = state.job[row].resumed + _length(state, part, row)
    strike(part.agenda, end, gpus)
    _go_to(part, now)
    if end > now:
        _free(part, now, end, gpus)
    part.tally[0].ended = True


@kernel
def _give(state, part):  # type: ignore[no-untyped-def]
    """Make promises, move them forward where a job has ended, and start whoever is due."""
    tally, now = part.tally[0], state.tally[0].now
    _go_to(part, now)
    _hold_overdue(part, now)
    if tally.late or tally.next < now:
        _hold_late(state, part, now)
    until, broken = tally.freed, tally.broken
    moves = (tally.ended or tally.overdue > 0) and (broken or until > now)
    tally.ended = False
    if moves:
        tally.freed = 0
    if moves or tally.late or tally.next <= now:
        row, tally.next, tally.late = part.waiting[0].first, NEVER, False
    else:
        row = _first_new(part)
    while row >= 0:
        after = np.int64(part.links[row].after)
        if part.begin[row] == NEVER:
            _promise(part, row, np.int64(state.job[row].gpus), _length(state, part, row))
        elif moves:
            _move(part, row, np.int64(state.job[row].gpus), _length(state, part, row), max(until, tally.freed), broken)
        if part.begin[row] > now:
            tally.next = min(tally.next, part.begin[row])
        elif start(state, row):
            unlink(part.links, part.waiting[0], row)
            expect(part.agenda, now + _length(state, part, row), np.int64(state.job[row].gpus))
        else:
            tally.late = True
        row = after
    if moves:
        tally.broken = False  # for each now has a place besides the others


@kernel
def _first_new(part):  # type: ignore[no-untyped-def]
    """The first of those at the end of the queue who are promised nothing yet; -1 for none."""
    new, row = np.int64(-1), part.waiting[0].last
    while row >= 0 and part.begin[row] == NEVER:
        new = row
        row = np.int64(part.links[row].before)
    return new


@kernel
def _next_change(state, part):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The next promised start, unless a running job may be over its limit by then."""
    if part.agenda.many[0] and part.agenda.tick[0] <= part.tally[0].next:
        return NEVER
    return part.tally[0].next


@kernel
def _length(state, part, row):  # type: ignore[no-untyped-def]
    """Ticks that the present attempt is expected to take; at least one."""
    limit = part.walltime[row]
    return max(1, limit if limit else state.work[state.job[row].record])


@kernel
def _hold_overdue(part, now):  # type: ignore[no-untyped-def]
    """What jobs over their limits hold is free from the next tick on, as far as is known."""
    agenda, gpus, i = part.agenda, np.int64(0), 0
    while i < agenda.many[0] and agenda.tick[i] <= now:
        gpus += agenda.gpus[i]
        i += 1
    if gpus:
        _take(part, now, now + 1, gpus)
    part.tally[0].overdue = gpus


@kernel
def _hold_late(state, part, now):  # type: ignore[no-untyped-def]
    """Let those begin now who were to begin before: for want of a place, or behind a job over its limit."""
    row = part.waiting[0].first
    while row >= 0:
        begin = part.begin[row]
        if begin < now:
            gpus, length = np.int64(state.job[row].gpus), _length(state, part, row)
            if begin + length > now:
                _take(part, now, begin + length, -gpus)
            _take(part, now, now + length, gpus)
            part.begin[row] = now
        row = np.int64(part.links[row].after)


@kernel
def _promise(part, row, gpus, length):  # type: ignore[no-untyped-def]
    """Promise a job the earliest start, the others in their places."""
    tick = earliest(part.profile, np.int64(part.size[row]), gpus, length, NEVER, NEVER)
    _take(part, tick, tick + length, gpus)
    part.begin[row] = tick


@kernel
def _move(part, row, gpus, length, until, broken):  # type: ignore[no-untyped-def]
    """Move a promise forward, the others in their places, as far as what is free up to a tick allows.

    Where promises are broken it is made again, and may then be later than it was.
    """
    old = part.begin[row]
    if broken:
        _free(part, old, old + length, gpus)
        _promise(part, row, gpus, length)
        return
    tick = earliest(part.profile, np.int64(part.size[row]), gpus, length, old, until)
    if tick < old:
        _take(part, tick, min(old, tick + length), gpus)
        _free(part, max(old, tick + length), old + length, gpus)
        part.begin[row] = tick


@kernel
def _free(part, begin, end, gpus):  # type: ignore[no-untyped-def]
    """Give back what was held from one tick to another: others may move there."""
    _take(part, begin, end, -gpus)
    part.tally[0].freed = max(part.tally[0].freed, end)


@kernel
def _go_to(part, now):  # type: ignore[no-untyped-def]
    """Forget what lies before now, and what was held for jobs over their limits when it was last looked at."""
    tally = part.tally[0]
    if tally.overdue:
        if begin_of(part.profile) == now:
            _free(part, now, now + 1, tally.overdue)
        tally.overdue = 0
    forget_before(part.profile, now)


@kernel
def _take(part, begin, end, gpus):  # type: ignore[no-untyped-def]
    """Take GPUs from one tick to another, or give them back where they are negative."""
    if take(part.profile, begin, end, gpus):
        part.tally[0].broken = True


kernels(Promises, _arrive, _leave, _give, _next_change)


@entry
def advance(state, part, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for this policy."""
    return run(state, part, asks, resumed)
