"""Policies that start waiting jobs and never preempt, compiled: FIFO, shortest job, and taking turns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.heaps import add, empty_skew, first_tick, pop, precedes, remove
from perdure.simulation.compiled.kernel import Records, kernel
from perdure.simulation.compiled.places import LADDER, is_kept_off, next_rung, take
from perdure.simulation.compiled.state import ASKS, DONE, NEVER, due_arrival, finish, heed, run
from perdure.simulation.workload import Workload


class Queues(NamedTuple):
    """Waiting jobs in queues; in each the first goes first, and who does not fit holds up its queue."""

    queue: NDArray[np.int64]  # of each job
    root: NDArray[np.int32]  # of each queue
    size: NDArray[np.int64]  # GPUs of the jobs of each queue; 0 where they differ
    order: Records  # skew heaps: jobs by running time or nothing, then in the order of arrival
    by_work: bool
    due: NDArray[np.float64]  # of each queue: the one that holds least over what it is due goes next; empty: by order
    held: NDArray[np.int64]  # GPUs of the running jobs of each queue
    closed: NDArray[np.bool_]  # in this pass
    aside: NDArray[np.int32]  # jobs passed over in this pass, though others of their queue may fit


def one_queue(jobs: Workload, by_work: bool) -> Queues:
    """Who does not fit holds up all."""
    return _queues(np.zeros(len(jobs), np.int64), np.zeros(1, np.int64), by_work, np.empty(0))


def by_size(jobs: Workload, by_work: bool) -> Queues:
    """Who does not fit is passed over: only jobs of its size need not be tried."""
    sizes, queue = np.unique(jobs.gpus, return_inverse=True)
    return _queues(queue.astype(np.int64), sizes, by_work, np.empty(0))


def by_owner(owner: NDArray[np.int64], due: NDArray[np.float64]) -> Queues:
    """Owners take turns."""
    return _queues(owner, np.zeros(len(due), np.int64), False, due)


def _queues(queue: NDArray[np.int64], size: NDArray[np.int64], by_work: bool, due: NDArray[np.float64]) -> Queues:
    n, queues = len(queue), len(size)
    order = empty_skew(n, np.zeros(n, np.int64))
    root, held, closed = np.full(queues, -1, np.int32), np.zeros(queues, np.int64), np.zeros(queues, np.bool_)
    aside = np.empty(n if size.any() else 0, np.int32)
    return Queues(queue, root, size, order, by_work, due, held, closed, aside)


@kernel
def advance(state, queues, asks, resumed):  # type: ignore[no-untyped-def]
    """Go on until nothing is left to happen, or until attempts failed about which somebody must be asked."""
    events = -1
    while True:
        if not resumed:
            now = _next_event(state, queues)
            if now == NEVER:
                return DONE
            state.tally[0].now = now
            events = state.tally[0].events
            while first_tick(state.ends, NEVER) <= now:
                row = pop(state.ends)
                queues.held[queues.queue[row]] -= state.job[row].gpus
                finish(state, row, asks)
            if state.questions.tally[0].many:
                return ASKS
        else:
            heed(state)
        resumed = False
        row = due_arrival(state)
        while row >= 0:
            _enqueue(state, queues, row)
            row = due_arrival(state)
        if state.tally[0].events == events:
            state.tally[0].events += 1
        _give(state, queues)


@kernel
def _next_event(state, queues):  # type: ignore[no-untyped-def]
    now = min(first_tick(state.ends, NEVER), first_tick(state.returns, NEVER))
    i = state.tally[0].arrived
    if i < len(state.job):
        now = min(now, state.job[i].submit)
    if state.places.kind == LADDER:
        for root in queues.root:
            if root >= 0:
                now = min(now, next_rung(state.places, np.int64(root), state.tally[0].now, NEVER))
    return now


@kernel
def _enqueue(state, queues, row):  # type: ignore[no-untyped-def]
    if queues.by_work:
        queues.order[row].key = state.work[state.job[row].record]
    queues.order[row].label = state.job[row].came
    _in(queues, row)


@kernel
def _in(queues, row):  # type: ignore[no-untyped-def]
    queue = queues.queue[row]
    queues.root[queue] = add(queues.order, np.int64(queues.root[queue]), row)


@kernel
def _out(queues, row):  # type: ignore[no-untyped-def]
    """Take the first job of its queue out."""
    queues.root[queues.queue[row]] = remove(queues.order, row, row)


@kernel
def _give(state, queues):  # type: ignore[no-untyped-def]
    """One pass: start the first of the queue whose turn it is, until all queues are held up or empty."""
    queues.closed[:] = False
    aside = 0
    while state.places.tally[0].total_free:
        queue = _whose_turn(state, queues)
        if queue < 0:
            break
        row = np.int64(queues.root[queue])
        if take(state.places, row, state.job[row].gpus, state.tally[0].now):
            _out(queues, row)
            queues.held[queue] += state.job[row].gpus
            run(state, row)
        elif queues.size[queue] and is_kept_off(state.places, row):
            _out(queues, row)
            queues.aside[aside] = row
            aside += 1
        else:
            queues.closed[queue] = True
    for i in range(aside):
        _in(queues, np.int64(queues.aside[i]))


@kernel
def _whose_turn(state, queues):  # type: ignore[no-untyped-def]
    best = -1
    for queue in range(len(queues.root)):
        row = np.int64(queues.root[queue])
        if row < 0 or queues.closed[queue] or queues.size[queue] > state.places.tally[0].total_free:
            continue
        if best < 0:
            best = queue
        elif len(queues.due):
            if queues.held[queue] / queues.due[queue] < queues.held[best] / queues.due[best]:
                best = queue
        elif precedes(queues.order, row, np.int64(queues.root[best])):
            best = queue
    return best
