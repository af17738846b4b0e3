"""Max-min fairness by rounds, compiled: `perdure.scheduling.maxmin` and `simulation.allocation.Rounds` define it.

What a job is owed changes for all from round to round, so each round ranks all jobs that are there; how much the jobs
of one size may have is worked out by size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.maxmin import UNIT, MaxMin
from perdure.simulation.compiled.best_first import nobody_ranked, rank, take_best
from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.gpu_places import forget, lift
from perdure.simulation.compiled.kernel import FLAG, LONG, SHORT, Records, entry, kernel, records
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.state import preempt, restart_due, start
from perdure.simulation.workload import Workload


class Owed(NamedTuple):
    """The jobs that are there, waiting or running, and what each is owed, in `UNIT` parts of a GPU-tick.

    Kept true: ``there[job[row].place] == row`` for the first `tally.many` of `there`; a size has `many` of them.
    """

    length: int  # of a round, in ticks
    total_gpus: int
    job: Records
    sizes: Records  # of gangs, the narrowest first
    there: NDArray[np.int32]
    ranked: Records  # of a round
    plan: NDArray[np.int32]  # of a round, in the order in which jobs start
    tally: Records  # one record


def prepare(policy: MaxMin, jobs: Workload, total_gpus: int) -> Owed:
    """Before the first round, which is due at once."""
    n, (gpus, size_of) = len(jobs), np.unique(jobs.gpus, return_inverse=True)
    job = records(n, owed=LONG, share=LONG, place=SHORT, size_of=SHORT, planned=FLAG)
    job["size_of"] = size_of
    sizes = records(len(gpus), gpus=LONG, many=LONG, share=LONG)  # that each of them has until the next round
    sizes["gpus"] = gpus
    tally = records(1, many=LONG, counted=LONG, due=LONG, settled=FLAG)  # as in `Deficits` and `Rounds`
    tally["due"] = -1
    length = max(1, round(policy.round_s * jobs.ticks_per_s))
    none = np.zeros(n, np.int32)
    return Owed(length, total_gpus, job, sizes, none, nobody_ranked(n), none.copy(), tally)


@kernel
def _arrive(state, owed, row):  # type: ignore[no-untyped-def]
    """A job has come, or come back with its next attempt: it is owed nothing."""
    _wake(state, owed)
    job, many = owed.job[row], owed.tally[0].many
    job.owed = 0
    job.share = 0
    job.place = many
    owed.there[many] = row
    owed.tally[0].many = many + 1
    owed.sizes[job.size_of].many += 1


@kernel
def _leave(state, owed, row):  # type: ignore[no-untyped-def]
    """The last one that is there takes the place of one whose attempt ends."""
    _wake(state, owed)
    owed.tally[0].many -= 1
    owed.sizes[owed.job[row].size_of].many -= 1
    last = np.int64(owed.there[owed.tally[0].many])
    owed.there[owed.job[row].place] = last
    owed.job[last].place = owed.job[row].place


@kernel
def _wake(state, owed):  # type: ignore[no-untyped-def]
    """Go on with the rounds: the first one that does not begin before now is next."""
    tally = owed.tally[0]
    if tally.settled:
        tally.settled = False
        tally.due += max(np.int64(0), -((tally.due - state.tally[0].now) // owed.length)) * owed.length


@kernel
def _next_change(state, owed):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The next round; rounds go on while there are jobs, and somebody waits."""
    return owed.tally[0].due if owed.tally[0].many and not owed.tally[0].settled else NEVER


@kernel
def _give(state, owed):  # type: ignore[no-untyped-def]
    """At the beginning of a round: settle what is owed, share out again, choose, preempt, and start.

    With everybody running the next plan is the same again, so rounds pass without one.
    """
    now, tally = state.tally[0].now, owed.tally[0]
    if now < tally.due:
        return
    tally.due = now + owed.length
    _share_out(owed)
    _settle(state, owed, now - tally.counted)
    tally.counted = now
    many = _choose(state, owed)
    for i in range(tally.many):
        row = np.int64(owed.there[i])
        runs = state.job[row].resumed >= 0
        if runs and not owed.job[row].planned and state.job[row].resumed + restart_due(state, row) < now:
            _preempt(state, row)
        owed.job[row].planned = False
    for i in range(many):
        if state.job[owed.plan[i]].resumed < 0:
            start(state, np.int64(owed.plan[i]))
    tally.settled = tally.many > 0 and state.tally[0].waiting == 0


@kernel
def _share_out(owed):  # type: ignore[no-untyped-def]
    """The max-min shares of all sizes, by water-filling: the narrowest first, while all of a size get what they ask."""
    left, many, part = np.int64(owed.total_gpus * UNIT), owed.tally[0].many, NEVER
    for i in range(len(owed.sizes)):
        size = owed.sizes[i]
        if size.many and part == NEVER and size.gpus * UNIT > left // many:
            part = left // many
        size.share = min(size.gpus * UNIT, part)
        left -= size.share * size.many
        many -= size.many


@kernel
def _settle(state, owed, elapsed):  # type: ignore[no-untyped-def]
    """Count the round that is over: what jobs were due, less what they ran. Rank them by what they are owed a GPU."""
    for i in range(owed.tally[0].many):
        row = np.int64(owed.there[i])
        job, gpus = owed.job[row], np.int64(state.job[row].gpus)
        job.owed += job.share * elapsed
        if state.job[row].resumed >= 0:
            job.owed -= gpus * (UNIT * elapsed)
        job.share = owed.sizes[job.size_of].share
        owed.ranked[i].key = -(job.owed + job.share) / gpus
        owed.ranked[i].label = state.job[row].came
        owed.ranked[i].row = row


@kernel
def _choose(state, owed):  # type: ignore[no-untyped-def]
    """Mark those that are owed most while they fit, and put them into `plan`; how many."""
    free, many, left = np.int64(owed.total_gpus), 0, owed.tally[0].many
    rank(owed.ranked, left)
    while left and free:
        row = take_best(owed.ranked, left)
        left -= 1
        if state.job[row].gpus <= free:
            free -= state.job[row].gpus
            owed.job[row].planned = True
            owed.plan[many] = row
            many += 1
    return many


@kernel
def _preempt(state, row):  # type: ignore[no-untyped-def]
    """Take a running job's GPUs; it waits."""
    lift(state.places, row, np.int64(state.job[row].gpus))
    forget(state.places, row)
    preempt(state, row)


kernels(Owed, _arrive, _leave, _give, _next_change)


@entry
def advance(state, owed, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for max-min fairness."""
    return run(state, owed, asks, resumed)
