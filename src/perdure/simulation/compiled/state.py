"""The world of the plain loop as arrays, and what happens to a job in it whatever the policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.heaps import empty_heap, first_tick, pop, push
from perdure.simulation.compiled.kernel import LONG, LONG_NONE, SHORT, Records, kernel, records
from perdure.simulation.compiled.places import Places, release
from perdure.simulation.workload import Workload

NEVER = np.int64(2**62)
DONE, ASKS = 0, 1  # why the compiled loop returns: nothing is left to happen, or a retry policy must decide


class State(NamedTuple):
    """Jobs and their attempts; see `World`. Times are ticks."""

    job: Records  # see `state_of`
    work: NDArray[np.int64]  # of all attempts, one after another
    passed: NDArray[np.bool_]
    places: Places
    ends: Records  # heap of running jobs
    returns: Records  # heap of jobs on their way to a next attempt
    log: Records  # attempts that are over; see `AttemptLog`
    tally: Records  # one record


def state_of(jobs: Workload, places: Places) -> State:
    """The world before the first event."""
    n = len(jobs)
    job = records(
        n,
        submit=LONG,
        gpus=LONG,
        first=LONG,  # attempt
        last=LONG,  # attempt
        number=SHORT,  # of the present attempt, from 0
        since=LONG,  # when it came to wait
        began=LONG_NONE,  # when it first ran
        before=LONG,  # run by the present attempt before it was last started
        resumed=LONG_NONE,  # since when it runs
        came=LONG,  # counts arrivals: the order in which jobs came
        start=LONG_NONE,
        end=LONG_NONE,
        preempted=SHORT,
        promoted=SHORT,
        ask=SHORT,  # not of this job: the rows about which a retry policy is asked, one after another
    )
    job["submit"], job["gpus"] = jobs.submit, jobs.gpus
    job["first"], job["last"] = jobs.first[:-1], jobs.first[1:] - 1
    log = records(
        len(jobs.work), job=SHORT, number=SHORT, node=SHORT, came=LONG, began=LONG, ended=LONG, ran=LONG
    )
    tally = records(
        1,
        now=LONG,
        arrived=LONG,  # jobs that came for the first time
        arrivals=LONG,
        logged=LONG,
        asked=LONG,
        events=LONG,
        busy=LONG,  # GPU-ticks
        waiting=LONG,  # jobs
        waiting_gpus=LONG,  # that they ask for
    )
    return State(job, jobs.work, jobs.passed, places, empty_heap(n), empty_heap(n), log, tally)


@kernel
def due_arrival(state):  # type: ignore[no-untyped-def]
    """A job that comes now, in the order of the plain loop; -1 for none."""
    i = state.tally[0].arrived
    if i < len(state.job) and state.job[i].submit <= state.tally[0].now:
        state.tally[0].arrived += 1
        return _arrive(state, i)
    if first_tick(state.returns, NEVER) <= state.tally[0].now:
        return _arrive(state, pop(state.returns))
    return -1


@kernel
def _arrive(state, row):  # type: ignore[no-untyped-def]
    state.tally[0].events += 1
    state.tally[0].waiting += 1
    state.tally[0].waiting_gpus += state.job[row].gpus
    state.job[row].since = state.tally[0].now
    state.job[row].came = state.tally[0].arrivals
    state.tally[0].arrivals += 1
    return row


@kernel
def attempt_of(state, row):  # type: ignore[no-untyped-def]
    """The present attempt."""
    return state.job[row].first + state.job[row].number


@kernel
def remaining(state, row):  # type: ignore[no-untyped-def]
    """Ticks that the present attempt must still run."""
    ran = state.job[row].before
    if state.job[row].resumed >= 0:
        ran += state.tally[0].now - state.job[row].resumed
    return state.work[attempt_of(state, row)] - ran


@kernel
def run(state, row):  # type: ignore[no-untyped-def]
    """Let a job run that has been given its GPUs."""
    now = state.tally[0].now
    push(state.ends, row, now + remaining(state, row))
    state.job[row].resumed = now
    state.tally[0].waiting -= 1
    state.tally[0].waiting_gpus -= state.job[row].gpus
    if state.job[row].began < 0:
        state.job[row].began = now
        if state.job[row].start < 0:
            state.job[row].start = now


@kernel
def stop(state, row):  # type: ignore[no-untyped-def]
    """Count what a job ran that runs no longer."""
    ran = state.tally[0].now - state.job[row].resumed
    state.job[row].before += ran
    state.job[row].resumed = -1
    state.tally[0].busy += ran * state.job[row].gpus


@kernel
def finish(state, row, asks):  # type: ignore[no-untyped-def]
    """End the attempt of a job that has run its time. One that failed comes back at once, unless `asks`."""
    state.tally[0].events += 1
    node = release(state.places, row, state.job[row].gpus)
    stop(state, row)
    attempt, i = attempt_of(state, row), state.tally[0].logged
    state.job[row].number += 1
    log = state.log[i]
    log.job = row
    log.number = state.job[row].number
    log.node = node
    log.came = state.job[row].since
    log.began = state.job[row].began
    log.ended = state.tally[0].now
    log.ran = state.job[row].before
    state.tally[0].logged += 1
    state.job[row].end = state.tally[0].now
    if state.passed[attempt] or attempt == state.job[row].last:
        return
    if asks:
        state.job[state.tally[0].asked].ask = row
        state.tally[0].asked += 1
    else:
        come_back(state, row, state.tally[0].now)


@kernel
def come_back(state, row, tick):  # type: ignore[no-untyped-def]
    """Let a job whose attempt failed come back at a tick, with its next one."""
    state.job[row].before = 0
    state.job[row].began = -1
    push(state.returns, row, tick)
