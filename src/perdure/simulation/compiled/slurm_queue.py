"""The eligible jobs of compiled Slurm, in the order of their priorities.

The order is that of the last calculation: between two of them jobs only come and go. A sorted array: a pass reads it
from the front, and coming and going move what is behind, in one stretch of memory. A heap would give the first job
sooner, but a pass that starts nobody reads hundreds of jobs and changes none.

A place is an index into `queue`, and holds another job after each start; a row is a job for good. Instants are ticks.
"""

from __future__ import annotations

import numpy as np

from perdure.scheduling.slurm.priority import HIGHEST, LOWEST
from perdure.simulation.compiled.fair_shares import hold, rank
from perdure.simulation.compiled.kernel import kernel
from perdure.simulation.compiled.limit_counts import count_running
from perdure.simulation.compiled.state import start


@kernel
def join(state, part, row):  # type: ignore[no-untyped-def]
    """Insert a job that becomes eligible where its priority of the last calculation puts it.

    A binary search, then a shift. Its age counts from when it came (ACCRUE_ALWAYS), else from when it was eligible.
    """
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
    """Take the job at a place of the queue out.

    `of_size` counts the waiting jobs of each size, so that the narrowest is found again without looking at all of them.
    """
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
    """Whether a job is before another: by the tier of its partition, its priority, when it came, and its row."""
    one, two = part.job[row], part.job[other]
    if one.tier != two.tier:
        return one.tier > two.tier
    if one.priority != two.priority:
        return one.priority > two.priority
    came, came_too = state.job[row].since, state.job[other].since
    return came < came_too or (came == came_too and row < other)


@kernel
def _priority(part, row):  # type: ignore[no-untyped-def]
    """The same as `perdure.scheduling.slurm.priority.priority`, at the last calculation.

    A weighted sum: of the age, in ticks, which counts no further than `max_age`; of the share of its association; and
    in `fixed` all that never changes while a job waits. Cut off to a whole number, as slurmctld keeps it: where these
    are equal the earlier submit decides.
    """
    how, job = part.how[0], part.job[row]
    waited = np.float64(max(0, part.tally[0].calculated - job.since))
    factor = min(1.0, waited / how.max_age) if how.max_age > 0 else np.float64(waited > 0)
    share = how.fair_weight * part.fair.node[job.node].factor if how.fair_weight else 0.0
    return np.int64(min(HIGHEST, max(LOWEST, job.fixed + how.age_weight * factor + share)))


@kernel
def calculate(state, part):  # type: ignore[no-untyped-def]
    """Calculate the priorities, if that is due, and put the queue in order, by insertion: it nearly is in order.

    An instant counts as the last multiple of the period. Without a weight for age or fair share no priority ever
    changes. Ages grow alike, so that few jobs pass others from one calculation to the next: insertion takes about as
    many steps as there are jobs, where sorting would take more and need memory of its own.
    """
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
def may_start(state, part):  # type: ignore[no-untyped-def]
    """Whether anybody waits who asks for no more than is free; if not, a pass need not look at the queue at all."""
    return part.tally[0].many > 0 and part.tally[0].narrowest <= state.places.tally[0].total_free


@kernel
def start_at(state, part, place):  # type: ignore[no-untyped-def]
    """Start the job at a place of the queue, if there is room; when it is expected to end is for the caller to note.

    The main pass notes it at once, a cycle only at its end, when its forecast is not needed any more.
    """
    if not start(state, part.queue[place]):
        return False
    note_start(state, part, place)
    return True


@kernel
def note_start(state, part, place):  # type: ignore[no-untyped-def]
    """Count the job at a place of the queue, which has just been started, for its limits and its share; it is out of
    the queue then.
    """
    row = part.queue[place]
    part.job[row].ends = state.tally[0].now + length_of(state, part, row)
    gpus = np.int64(state.job[row].gpus)
    count_running(part.limits, row, 1, gpus)
    if part.how[0].fair_weight:
        hold(part.fair, part.job[row].node, gpus, state.tally[0].now)
    part.job[row].waits = False
    _quit(state, part, place)


@kernel
def length_of(state, part, row):  # type: ignore[no-untyped-def]
    """Ticks that a job is expected to take; at least one.

    Its time limit, which is all that slurmctld knows. Where nobody set one, the time that it really takes: the trace is
    then taken to have come from a site that knew it.
    """
    limit = part.job[row].limit
    return max(1, limit if limit else state.work[state.job[row].record])
