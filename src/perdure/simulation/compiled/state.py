"""The world of the plain loop as arrays, and what happens to a job in it whatever the policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.bad_nodes import BadNodes, bad_nodes, following, is_over, lasts, left_by, met_by
from perdure.simulation.compiled.heaps import empty_heap, first_tick, pop, push
from perdure.simulation.compiled.kernel import LONG, LONG_NONE, SHORT, Records, kernel, records
from perdure.simulation.compiled.places import Places, release
from perdure.simulation.compiled.questions import OVER, Questions, ask, no_questions, note_nodes
from perdure.simulation.faults import MOST_MET, NodeFaults
from perdure.simulation.workload import Workload

NEVER = np.int64(2**62)
DONE, ASKS = 0, 1  # why the compiled loop returns: nothing is left to happen, or a retry policy must decide


class State(NamedTuple):
    """Jobs and their attempts; see `World`. Times are ticks."""

    job: Records  # see `state_of`
    work: NDArray[np.int64]  # of all attempts, one after another
    passed: NDArray[np.bool_]
    places: Places
    bad: BadNodes
    questions: Questions
    ends: Records  # heap of running jobs
    returns: Records  # heap of jobs on their way to a next attempt
    log: Records  # attempts that are over; see `AttemptLog`
    tally: Records  # one record


def state_of(jobs: Workload, places: Places, faults: NodeFaults | None) -> State:
    """The world before the first event."""
    n = len(jobs)
    job = records(
        n,
        submit=LONG,
        gpus=LONG,
        record=LONG,  # the present attempt; a row of `work`
        last=LONG,  # attempt
        tried=SHORT,  # attempts that are over
        since=LONG,  # when it came to wait
        began=LONG_NONE,  # when it first ran
        before=LONG,  # run by the present attempt before it was last started
        resumed=LONG_NONE,  # since when it runs
        came=LONG,  # counts arrivals: the order in which jobs came
        start=LONG_NONE,
        end=LONG_NONE,
        preempted=SHORT,
        promoted=SHORT,
    )
    job["submit"], job["gpus"] = jobs.submit, jobs.gpus
    job["record"], job["last"] = jobs.first[:-1], jobs.first[1:] - 1
    again = 0 if faults is None else (MOST_MET - 1) * int(faults.bound.sum())
    log = records(
        len(jobs.work) + again,
        job=SHORT,
        number=SHORT,
        node=SHORT,
        record=SHORT,
        came=LONG,
        began=LONG,
        ended=LONG,
        ran=LONG,
    )
    tally = records(
        1,
        now=LONG,
        arrived=LONG,  # jobs that came for the first time
        arrivals=LONG,
        logged=LONG,
        events=LONG,
        busy=LONG,  # GPU-ticks
        waiting=LONG,  # jobs
        waiting_gpus=LONG,  # that they ask for
    )
    bad = bad_nodes(faults, n, jobs.ticks_per_s)
    questions = no_questions(int(places.tally[0]["total_free"]))
    return State(job, jobs.work, jobs.passed, places, bad, questions, empty_heap(n), empty_heap(n), log, tally)


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
def remaining(state, row):  # type: ignore[no-untyped-def]
    """Ticks that the present attempt must still run."""
    ran = state.job[row].before
    if state.job[row].resumed >= 0:
        ran += state.tally[0].now - state.job[row].resumed
    return state.work[state.job[row].record] - ran


@kernel
def run(state, row):  # type: ignore[no-untyped-def]
    """Let a job run that has been given its GPUs."""
    now = state.tally[0].now
    push(state.ends, row, now + lasts(state.bad, state.places, row, remaining(state, row), now))
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
    until = note_nodes(state.questions, state.places, row)
    node = release(state.places, row, state.job[row].gpus)
    stop(state, row)
    state.job[row].tried += 1
    state.job[row].end = state.tally[0].now
    met, record = met_by(state.bad, row), state.job[row].record
    if met >= 0:
        record = state.bad.fault[met].record
    _write(state, row, record, node)
    if met >= 0:
        if is_over(state.bad, met):
            return
    elif state.passed[record] or record == state.job[row].last:
        return
    else:
        met = left_by(state.bad, row, record, state.job[row].before, state.questions, until, state.tally[0].now)
        state.job[row].record = following(state.bad, record)
    if asks:
        bad = np.int64(state.bad.fault[met].node) if met >= 0 else -1
        ask(state.questions, row, state.job[row].tried, record, state.job[row].before, bad, until)
    else:
        _come_back(state, row, state.tally[0].now)


@kernel
def _write(state, row, record, node):  # type: ignore[no-untyped-def]
    """Put the attempt that is over into the log."""
    log = state.log[state.tally[0].logged]
    log.job = row
    log.number = state.job[row].tried
    log.node = node
    log.record = record
    log.came = state.job[row].since
    log.began = state.job[row].began
    log.ended = state.tally[0].now
    log.ran = state.job[row].before
    state.tally[0].logged += 1


@kernel
def heed(state):  # type: ignore[no-untyped-def]
    """Let jobs come back as the answers to the questions say."""
    questions = state.questions
    for i in range(questions.tally[0].many):
        if questions.about[i].back != OVER:
            _come_back(state, questions.about[i].row, questions.about[i].back)
    questions.tally[0].many = 0
    questions.tally[0].nodes = 0


@kernel
def _come_back(state, row, tick):  # type: ignore[no-untyped-def]
    """Let a job whose attempt failed come back at a tick, with its next one."""
    state.job[row].before = 0
    state.job[row].began = -1
    push(state.returns, row, tick)
