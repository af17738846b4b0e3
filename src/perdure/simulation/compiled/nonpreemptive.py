"""Policies that start waiting jobs and never preempt, compiled: FIFO, shortest job, and taking turns.

`perdure.scheduling.fifo`, `shortest`, `capacity` and `drf` define them. All four are queues of which the first job is
tried: one queue, one for each size of gang, or one for each owner. Which queue is next is looked for among their heads,
of which there are few; within a queue a skew heap keeps the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.capacity import Capacity
from perdure.scheduling.drf import DominantShare
from perdure.scheduling.fifo import Fifo
from perdure.scheduling.shortest import ShortestJob
from perdure.simulation.compiled.kernel import Records, entry, kernel
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.placements import looks_for_itself
from perdure.simulation.compiled.skew_heap import add, empty_skew, precedes, remove
from perdure.simulation.compiled.state import start
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of


class Queues(NamedTuple):
    """Waiting jobs in queues; in each the first goes first, and a job that does not fit holds up its queue.

    Between passes every waiting job is in the queue that it belongs to, and no other job is in any.

    Three uses. One queue, which a job that does not fit holds up (`Fifo`, `ShortestJob`). A queue for each size of
    gang, where jobs are passed over: a job that does not fit says the same of all of its size, so the rest of its queue
    need not be tried. A queue for each owner (`Capacity`, `DominantShare`), where `due` says which is next.
    """

    queue: NDArray[np.int32]  # of each job
    root: NDArray[np.int64]  # of each queue
    size: NDArray[np.int64]  # GPUs of the jobs of each queue; 0 where they differ
    order: Records  # skew heaps: jobs by running time or nothing, then in the order of arrival
    by_work: bool
    due: NDArray[np.float64]  # of each queue: the one that holds least over what it is due goes next; empty: by order
    limit: NDArray[np.float64]  # GPUs that each owner may hold; empty: as many as there are
    held: NDArray[np.int64]  # GPUs of the running jobs of each queue
    closed: NDArray[np.bool_]  # in this pass
    aside: NDArray[np.int32]  # jobs passed over in this pass, though others of their queue may find a place


def prepare(policy: Fifo | ShortestJob | Capacity | DominantShare, jobs: Workload, total_gpus: int) -> Queues:
    """Empty queues: of owners who take turns; or one, where a job that does not fit holds up all.

    Where such a job is passed over, one for each size of gang.
    """
    if isinstance(policy, Capacity | DominantShare):
        turns = policy.ranking(view_of(jobs, total_gpus))
        owners, due = np.array(turns.owner, np.int32), np.array(turns.due, np.float64)
        return _queues(owners, np.zeros(len(due), np.int64), False, due, np.array(turns.limit, np.float64))
    by_work = isinstance(policy, ShortestJob)
    if policy.blocks:
        return _queues(np.zeros(len(jobs), np.int32), np.zeros(1, np.int64), by_work, np.empty(0))
    sizes, queue = np.unique(jobs.gpus, return_inverse=True)
    return _queues(queue.astype(np.int32), sizes, by_work, np.empty(0))


def _queues(
    queue: NDArray[np.int32],
    size: NDArray[np.int64],
    by_work: bool,
    due: NDArray[np.float64],
    limit: NDArray[np.float64] | None = None,
) -> Queues:
    """Empty queues.

    `due` empty: the first job of all queues is next; else the queue that holds least of what it is due.
    """
    queues = len(size)
    root, held, closed = np.full(queues, -1), np.zeros(queues, np.int64), np.zeros(queues, np.bool_)
    aside = np.zeros(len(queue) if size.any() else 0, np.int32)
    limit = np.empty(0) if limit is None else limit
    return Queues(queue, root, size, empty_skew(len(queue)), by_work, due, limit, held, closed, aside)


@kernel
def _leave(state, queues, row):  # type: ignore[no-untyped-def]
    """The owner's queue holds fewer GPUs. Where queues are not those of owners the count is kept and never read."""
    queues.held[queues.queue[row]] -= state.job[row].gpus


@kernel
def _arrive(state, queues, row):  # type: ignore[no-untyped-def]
    """A job that came waits in its queue, by its running time where that counts, then in the order of arrival."""
    if queues.by_work:
        queues.order[row].key = state.work[state.job[row].record]
    queues.order[row].label = state.job[row].came
    _in(queues, row)


@kernel
def _in(queues, row):  # type: ignore[no-untyped-def]
    """Put a waiting job into its queue, its key and label being set."""
    queue = queues.queue[row]
    queues.root[queue] = add(queues.order, queues.root[queue], row)


@kernel
def _out(queues, row):  # type: ignore[no-untyped-def]
    """Take the first job of its queue out."""
    queues.root[queues.queue[row]] = remove(queues.order, row, row)


@kernel
def _give(state, queues):  # type: ignore[no-untyped-def]
    """One pass: start the first of the queue whose turn it is, until all queues are held up or empty.

    Each step looks at the heads of all queues and starts a job, closes a queue, or puts a job aside: the waiting jobs
    behind the heads cost nothing. Where a queue is that of a size, a job that looks for its own place (it is kept off
    nodes, or climbs a ladder) does not hold up the others; it is put aside until the pass is over.
    """
    queues.closed[:] = False
    aside = 0
    while state.places.tally[0].total_free:
        queue = _whose_turn(state, queues)
        if queue < 0:
            break
        row = queues.root[queue]
        if start(state, row):
            _out(queues, row)
            queues.held[queue] += state.job[row].gpus
        elif queues.size[queue] and looks_for_itself(state.places, row):
            _out(queues, row)
            queues.aside[aside] = row
            aside += 1
        else:
            queues.closed[queue] = True
    for i in range(aside):
        _in(queues, np.int64(queues.aside[i]))


@kernel
def _whose_turn(state, queues):  # type: ignore[no-untyped-def]
    """The queue whose first job is tried next; -1 if all are held up, empty, or too wide for what is free.

    Of queues that hold equally much of what they are due the lower one goes first, as in the plain policies. Shares are
    compared as the quotients that the plain policy compares, so that rounding decides alike.
    """
    best = -1
    for queue in range(len(queues.root)):
        row = queues.root[queue]
        if row < 0 or queues.closed[queue] or queues.size[queue] > state.places.tally[0].total_free:
            continue
        if len(queues.limit) and queues.held[queue] + state.job[row].gpus > queues.limit[queue]:
            continue
        if best < 0:
            best = queue
        elif len(queues.due):
            if queues.held[queue] / queues.due[queue] < queues.held[best] / queues.due[best]:
                best = queue
        elif precedes(queues.order, row, queues.root[best]):
            best = queue
    return best


kernels(Queues, _arrive, _leave, _give)


@entry
def advance(state, queues, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for these policies."""
    return run(state, queues, asks, resumed)
