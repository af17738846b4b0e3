"""Conservative backfilling that keeps its promises, compiled (`perdure.scheduling.backfill.Conservative` defines it).

What will be free is a step function of the tick, kept from pass to pass: running jobs up to their expected ends and
waiting jobs from their promised starts on. A job that starts as promised changes nothing in it, and one that ends as
expected neither. A waiting job is moved forward in place: before its own promise only the others stand, so that a look
at what is free up to there tells whether it can be earlier. It can only begin before what has come free since the last
look ends: where jobs run as long as expected nobody is looked at again.

The plain form makes its forecast again from all promises in each pass, which costs the square of the queue. Here a pass
without an early end looks at new jobs only, and one with it makes a short search for each waiting job.
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

    A promise can be broken in one way only: a job runs beyond its limit and holds GPUs that were promised to others.
    Then the profile is negative somewhere, `broken` is set, and the next pass makes all promises again in order.
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
    """The state before the first event: nobody waits, nobody runs, all is free.

    Each running job has at most one stretch of the profile that begins at its end, each waiting one two, which bounds
    its length. At most `total_gpus` jobs run at once.
    """
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
    """A job that came, or came back after a failure, waits behind all others; the next pass promises it a start."""
    part.begin[row] = NEVER
    append(part.links, part.waiting[0], row)


@kernel
def _leave(state, part, row):  # type: ignore[no-untyped-def]
    """A running job has ended. If it ended early, its GPUs are free until its expected end, and others may move there.

    An attempt that failed counts as ended: the next one is a new arrival.
    """
    now, gpus = state.tally[0].now, np.int64(state.job[row].gpus)
    end = state.job[row].resumed + _length(state, part, row)
    strike(part.agenda, end, gpus)
    _go_to(part, now)
    if end > now:
        _free(part, now, end, gpus)
    part.tally[0].ended = True


@kernel
def _give(state, part):  # type: ignore[no-untyped-def]
    """Make promises, move them forward where a job has ended, and start whoever is due.

    Which waiting jobs are looked at, in the order of arrival:

    - all, where a job has ended or is overdue, and GPUs have come free since or a promise is broken (`moves`);
    - all, where a promised start is due, or one that was due could not be kept;
    - else only the new ones, at the end of the queue.

    `until` is the last tick at which anything has come free since the last pass; moving one job forward frees its old
    place for those behind it, so that it grows within the pass.
    """
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
    """The first job of those at the end of the queue that are promised nothing yet; -1 for none.

    Read from the end: a pass over a long queue of promised jobs does not touch them.
    """
    new, row = np.int64(-1), part.waiting[0].last
    while row >= 0 and part.begin[row] == NEVER:
        new = row
        row = np.int64(part.links[row].before)
    return new


@kernel
def _next_change(state, part):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The next promised start; `NEVER` where a running job may be over its limit by then.

    In that case the promise depends on when the job ends, and its end is an event anyway.
    """
    if part.agenda.many[0] and part.agenda.tick[0] <= part.tally[0].next:
        return NEVER
    return part.tally[0].next


@kernel
def _length(state, part, row):  # type: ignore[no-untyped-def]
    """Ticks that the present attempt is expected to take: its limit, or without one its true running time; at least
    1.
    """
    limit = part.walltime[row]
    return max(1, limit if limit else state.work[state.job[row].record])


@kernel
def _hold_overdue(part, now):  # type: ignore[no-untyped-def]
    """Take what jobs over their limits hold for one tick: they are expected to end at the next one.

    The agenda is in the order of expected ends, so that the overdue ones are at its front. `_go_to` gives the GPUs back
    in the next pass, before they are taken again.
    """
    agenda, gpus, i = part.agenda, np.int64(0), 0
    while i < agenda.many[0] and agenda.tick[i] <= now:
        gpus += agenda.gpus[i]
        i += 1
    if gpus:
        _take(part, now, now + 1, gpus)
    part.tally[0].overdue = gpus


@kernel
def _hold_late(state, part, now):  # type: ignore[no-untyped-def]
    """Move promises that lie in the past to now: of jobs that were due and found no place, or behind an overdue job.

    Such a job is due at every event until it starts. What is left of its old place is given back, without noting that
    anything has come free: it is taken again at once, and somewhat later.
    """
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
    """Promise a job the earliest start that delays no promise made before, and take its GPUs from there on."""
    tick = earliest(part.profile, np.int64(part.size[row]), gpus, length, NEVER, NEVER)
    _take(part, tick, tick + length, gpus)
    part.begin[row] = tick


@kernel
def _move(part, row, gpus, length, until, broken):  # type: ignore[no-untyped-def]
    """Move a promise forward as far as the others in their places allow; only starts before `until` are looked for.

    The job keeps its place while it looks, which needs no change of the profile: what is free before its promise is
    what the others leave. Only the difference is then taken and given back. Where promises are broken that does not
    hold; then the promise is given up and made again, and may be later than it was.
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
    """Give back GPUs held from one tick to another, and note up to where waiting jobs may now move forward."""
    _take(part, begin, end, -gpus)
    part.tally[0].freed = max(part.tally[0].freed, end)


@kernel
def _go_to(part, now):  # type: ignore[no-untyped-def]
    """Forget what lies before now, and give back what `_hold_overdue` held at the last look, if that was at this tick.

    If it was earlier, its one tick is over and forgotten with the rest.
    """
    tally = part.tally[0]
    if tally.overdue:
        if begin_of(part.profile) == now:
            _free(part, now, now + 1, tally.overdue)
        tally.overdue = 0
    forget_before(part.profile, now)


@kernel
def _take(part, begin, end, gpus):  # type: ignore[no-untyped-def]
    """`free_profile.take`, which notes in `broken` that more has been promised than there is."""
    if take(part.profile, begin, end, gpus):
        part.tally[0].broken = True


kernels(Promises, _arrive, _leave, _give, _next_change)


@entry
def advance(state, part, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for this policy."""
    return run(state, part, asks, resumed)
