"""Jobs as a preemptive policy sees them, compiled: in levels, those that wait and those that run.

All jobs of one level have precedence over those of the next. Policies without levels have a single one. What decides
within a level is kept with each job as ``(key, then, label)``, the least first:

- ``key`` is what the policy ranks by. Where all keys change as jobs run, it is kept such that the order of the running
  ones stands still: `key_now` is what it comes to at present.
- ``then`` decides between equal keys where a policy says so.
- ``label`` numbers jobs in the order in which they came, or took their present place.

Waiting jobs are in skew heaps, one for each level and size of gang; running ones in the heaps of `running_jobs`. A job
is in one of both, or, in the middle of a pass, in one of the lists at the end of `Levels`.

The level is part of the key (times `stride`, which no rank reaches), so that one comparison orders running jobs across
levels.

====================  ==========================================  =========================================
policy                key of a waiting job                        key of a running job
====================  ==========================================  =========================================
srtf                  ticks left                                  tick of the end
srsf                  GPU-ticks left                              tick of the end (order within one size)
fewest-gpus           GPUs                                        GPUs
las, las-2d           level times stride                          the same
gittins-2d            level times stride, plus rank of its index  the same, as of the last `refresh`
====================  ==========================================  =========================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.event_heap import NEVER, Ticks, empty_ticks
from perdure.simulation.compiled.kernel import FLAG, LONG, SHORT, Records, kernel, records
from perdure.simulation.compiled.skew_heap import add, empty_skew, precedes, remove
from perdure.simulation.compiled.state import remaining
from perdure.simulation.workload import Workload

REMAINING, REMAINING_SERVICE, GPUS, ATTAINED, GITTINS = range(5)


class Rules(NamedTuple):
    """The parameters of the policy, as numba reads them.

    `by` is one of the five constants above. Limits and steps are in ticks, or in GPU-ticks where `widths` says that
    service counts GPUs.
    """

    by: int
    widths: bool = False  # service counts GPUs
    knob: float = 0.0
    late: bool = False  # demotions are looked for when the public simulator does
    resets: bool = False
    limits: NDArray[np.int64] = np.empty(0, np.int64)  # service at which a job leaves each level but the last
    steps: NDArray[np.int64] = np.empty(0, np.int64)  # Gittins: services in GPU-ticks at which the index changes
    ranks: NDArray[np.int64] = np.zeros(1, np.int64)  # the place of the index below each, and above the last; 0 first


class Levels(NamedTuple):
    """The jobs in their levels, and the scratch space of a pass.

    Between passes every waiting job is in one heap of `heads`, every running one in one heap of `running`, and the
    lists at the end are empty but for `owed`.
    """

    rules: Rules
    total_gpus: int
    stride: int  # of keys, from level to level
    job: Records  # see `levels_of`
    order: Records  # precedence, and skew heaps of the waiting jobs
    sizes: Records  # of gangs, ascending: GPUs, and whether no place was found for it in this pass
    heads: NDArray[np.int64]  # (levels, sizes): the first waiting job; -1 for none
    running: Records  # see `running_jobs`
    classes: Records  # likewise
    indices: Records  # Gittins: of the running jobs, see `gittins_indices`
    sinks: Ticks  # of running jobs: when they are demoted
    rises: Ticks  # of waiting jobs: when they are promoted
    owed: NDArray[np.int32]  # lists of rows: to be promoted at the next event,
    moved: NDArray[np.int32]  # changing level now,
    margin: NDArray[np.int64]  # running jobs that may have to yield in this pass, the last in precedence first,
    lifted: NDArray[np.int64]  # those that must, the first in precedence first,
    chosen: NDArray[np.int64]  # waiting jobs that are chosen,
    aside: NDArray[np.int32]  # waiting jobs that found no place
    tally: Records  # one record


def levels_of(jobs: Workload, rules: Rules, total_gpus: int) -> Levels:
    """Levels without jobs. At one time no more jobs run than there are GPUs, nor of one size than fit side by side: so
    long are the heaps of running jobs, with a place to spare.
    """
    n, levels, most = len(jobs), len(rules.limits) + 1, min(len(jobs), total_gpus)
    widths, size_of = np.unique(jobs.gpus, return_inverse=True)
    job = records(
        n,
        size_of=SHORT,  # in `sizes`
        level=SHORT,
        place=SHORT,  # among its class of `running`
        watched=SHORT,  # where it is in `indices`
        served=LONG,  # ticks run since last in the top level, up to `counted`
        waited=LONG,  # ticks waited since then, up to `counted`
        counted=LONG,
    )
    job["size_of"] = size_of
    sizes = records(len(widths), gpus=LONG, closed=FLAG)
    sizes["gpus"] = widths
    order = empty_skew(n)
    order["then"] = _then(jobs, rules)
    classes = records(len(widths) if rules.by == REMAINING_SERVICE else 1, begin=LONG, many=LONG)
    room = total_gpus // widths + 1 if rules.by == REMAINING_SERVICE else np.array([most + 1])
    classes["begin"] = np.cumsum(room) - room
    tally = records(1, many_owed=LONG, many_lifted=LONG, front=LONG, back=LONG, turn=LONG, sunk=LONG, watched=LONG)
    tally["sunk"] = NEVER
    return Levels(
        rules,
        total_gpus,
        int(rules.ranks.max()) + 1,
        job,
        order,
        sizes,
        np.full((levels, len(widths)), -1),
        records(int(room.sum()), row=LONG),
        classes,
        records(2 * most if rules.by == GITTINS else 0, row=LONG, gpus=LONG, origin=LONG, step=LONG, until=LONG),
        empty_ticks(*(n, 2 * most) if len(rules.limits) else (0, 0)),
        empty_ticks(*(n, n) if rules.knob else (0, 0)),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(n, np.int32),
        tally,
    )


def _then(jobs: Workload, rules: Rules) -> NDArray[np.int64]:
    """What decides between equal keys, before the order of arrival does; rows are in the order of submit."""
    if rules.by != GITTINS:
        return np.zeros(len(jobs), np.int64)
    return np.unique(jobs.submit, return_inverse=True)[1] if rules.late else np.arange(len(jobs))


@kernel
def service(state, levels, row):  # type: ignore[no-untyped-def]
    """What a job has been served since it was last in the top level, up to when it was last counted.

    In ticks or GPU-ticks.
    """
    return levels.job[row].served * (state.job[row].gpus if levels.rules.widths else 1)


@kernel
def count(state, levels, row):  # type: ignore[no-untyped-def]
    """Count a running job's service up to now. Nothing is counted twice: `counted` is up to when it was.

    While the job restarts that is the tick at which it is to work.
    """
    if levels.job[row].counted < state.tally[0].now:
        levels.job[row].served += state.tally[0].now - levels.job[row].counted
        levels.job[row].counted = state.tally[0].now


@kernel
def waiting_key(state, levels, row):  # type: ignore[no-untyped-def]
    """The key of a job that waits, its service counted up to now. It does not change while the job waits."""
    by = levels.rules.by
    if by == REMAINING:
        return remaining(state, row)
    if by == REMAINING_SERVICE:
        return remaining(state, row) * state.job[row].gpus
    if by == GPUS:
        return np.int64(state.job[row].gpus)
    key = np.int64(levels.job[row].level) * levels.stride
    if by == GITTINS:
        key += levels.rules.ranks[steps_taken(state, levels, row)]
    return key


@kernel
def running_key(state, levels, row):  # type: ignore[no-untyped-def]
    """The key of a job that runs, its service counted up to now.

    Of what remains, all keys of running jobs fall alike. So the tick of the end stands for it, whose order does not
    change: a heap need not be touched as time goes on.
    """
    if levels.rules.by == REMAINING or levels.rules.by == REMAINING_SERVICE:
        return state.tally[0].now + remaining(state, row)
    return waiting_key(state, levels, row)


@kernel
def key_now(state, levels, row):  # type: ignore[no-untyped-def]
    """What a running job's key comes to now, to be compared with that of a waiting one."""
    key = levels.order[row].key
    if levels.rules.by == REMAINING:
        return key - state.tally[0].now
    if levels.rules.by == REMAINING_SERVICE:
        return (key - state.tally[0].now) * state.job[row].gpus
    return key


@kernel
def steps_taken(state, levels, row):  # type: ignore[no-untyped-def]
    """How many of the services at which the Gittins index changes a job has reached. A binary search."""
    attained = levels.job[row].served * state.job[row].gpus
    low, high = 0, len(levels.rules.steps)
    while low < high:
        middle = (low + high) >> 1
        if levels.rules.steps[middle] <= attained:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def runs_before(state, levels, runner, waiter):  # type: ignore[no-untyped-def]
    """Whether a running job comes before a waiting one: among equals it does, unless it has just sunk.

    So no job is preempted for an equal one; see `perdure.scheduling.keyed.AllByKey`.
    """
    key = key_now(state, levels, runner)
    if key != levels.order[waiter].key:
        return key < levels.order[waiter].key
    if levels.order[runner].then != levels.order[waiter].then:
        return levels.order[runner].then < levels.order[waiter].then
    return not just_sank(levels, runner)


@kernel
def just_sank(levels, row):  # type: ignore[no-untyped-def]
    """Whether a running job came down to its level in this pass: then it is behind its equals."""
    return levels.order[row].label >= levels.tally[0].sunk


@kernel
def put_in_line(levels, row):  # type: ignore[no-untyped-def]
    """Put a waiting job, which is in no line, among those of its level and size, as its key and label say."""
    level, size = np.int64(levels.job[row].level), np.int64(levels.job[row].size_of)
    levels.heads[level, size] = add(levels.order, levels.heads[level, size], row)


@kernel
def take_out(levels, row):  # type: ignore[no-untyped-def]
    """Take a waiting job out from among them."""
    level, size = np.int64(levels.job[row].level), np.int64(levels.job[row].size_of)
    levels.heads[level, size] = remove(levels.order, levels.heads[level, size], row)


@kernel
def first_waiting(levels, level, below):  # type: ignore[no-untyped-def]
    """The first waiting job of a level with fewer GPUs than `below`, of a size that is not closed; -1 for none.

    Looks at the head of each size, from the narrowest on: sizes are few, whatever the number of jobs.
    """
    best = np.int64(-1)
    for size in range(len(levels.sizes)):
        if levels.sizes[size].gpus >= below:
            break
        row = levels.heads[level, size]
        if row >= 0 and not levels.sizes[size].closed and (best < 0 or precedes(levels.order, row, best)):
            best = row
    return best
