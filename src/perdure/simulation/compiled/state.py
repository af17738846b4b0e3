"""The world of the plain loop as arrays, and what happens to a job in it whatever the policy.

`perdure.simulation.world.World` defines it. A job is on its way (in `returns`, or not yet submitted), waits, runs (in
`ends`), or is over. A loop goes from instant to instant with `next_event` and `begin_instant`; at one it takes all that
`due_end` gives, then all that `due_arrival` gives, then gives out GPUs by `start` and `preempt`. The order in which
jobs of one instant come and go is that of the plain loop, since policies break ties by it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.bad_nodes import (
    CompiledBadNodes,
    bad_nodes,
    following,
    is_over,
    lasts,
    left_by,
    met_by,
)
from perdure.simulation.compiled.event_heap import NEVER, Ticks, discard, empty_ticks, first_tick, holds, pop, push
from perdure.simulation.compiled.gpu_places import Places, release
from perdure.simulation.compiled.kernel import LONG, SHORT, Records, kernel, records
from perdure.simulation.compiled.placements import next_rung, take
from perdure.simulation.compiled.retry_queries import OVER, Questions, ask, no_questions, note_nodes
from perdure.simulation.faults import MOST_MET, NodeFaults
from perdure.simulation.workload import Workload

DONE, ASKS, PAUSED = 0, 1, 2
"""Why a compiled loop returns: nothing is left to happen, a retry policy must decide, or it came to where it was to
stop."""


class State(NamedTuple):
    """Jobs and their attempts; see `World`. Times are ticks.

    Everything but the first four, which are read only, changes as a replay goes on; a copy of the arrays is a copy of
    the world.

    Kept true between instants: a job is in `returns`, or has not come (row >= `tally.arrived`), or waits, or is in
    `ends` with ``resumed >= 0``, or is over; `tally.waiting` and `tally.waiting_gpus` count those that wait; the GPUs
    of those in `ends` and ``places.tally.total_free`` make up the cluster.
    """

    submit: NDArray[np.int64]
    first: NDArray[np.int64]  # as in `Workload`, like the next two
    work: NDArray[np.int64]
    passed: NDArray[np.bool_]
    job: Records  # see `_jobs_to_come`
    places: Places
    bad: CompiledBadNodes
    questions: Questions
    ends: Ticks  # of running jobs
    returns: Ticks  # of jobs on their way to a next attempt
    rungs: Ticks  # of refused jobs: when they may look one rung looser
    log: Records  # attempts that are over; see `AttemptLog`
    tally: Records  # one record


def state_of(jobs: Workload, places: Places, faults: NodeFaults | None) -> State:
    """The world before the first event: nobody has come, all GPUs are free. Arrays are as long as they can ever get."""
    n, total_gpus = len(jobs), int(places.tally[0]["total_free"])
    return State(
        jobs.submit,
        jobs.first,
        jobs.work,
        jobs.passed,
        _jobs_to_come(jobs),
        places,
        bad_nodes(faults, n, jobs.ticks_per_s),
        no_questions(total_gpus),
        empty_ticks(n, 2 * min(n, total_gpus)),  # twice: in a pass jobs are started before others are preempted
        empty_ticks(n, n),
        empty_ticks(*(n, n) if places.relax else (0, 0)),
        _empty_log(jobs, faults),
        _tally(),
    )


def _jobs_to_come(jobs: Workload) -> Records:
    """A record for each job, none of which has come yet."""
    job = records(
        len(jobs),
        gpus=SHORT,
        record=SHORT,  # the present attempt; a row of `work`
        tried=SHORT,  # attempts that are over
        came=SHORT,  # counts arrivals: the order in which jobs came
        preempted=SHORT,
        promoted=SHORT,
        since=LONG,  # when it came to wait
        began=LONG,  # when its present attempt first ran; -1 before
        restart=LONG,  # what a preemption adds to its running time
        lost=LONG,  # what preemptions have added to that of the present attempt
        before=LONG,  # run by the present attempt before it was last started
        resumed=LONG,  # since when it runs; -1 while it does not
        start=LONG,  # -1 before
        end=LONG,
    )
    job["gpus"], job["record"], job["restart"] = jobs.gpus, jobs.first[:-1], jobs.restart
    for name in ("began", "resumed", "start", "end"):
        job[name] = -1
    return job


def _empty_log(jobs: Workload, faults: NodeFaults | None) -> Records:
    """A log as long as it can ever get.

    A fault of a node may end `MOST_MET` attempts of a job instead of the one that is recorded.
    """
    again = 0 if faults is None else (MOST_MET - 1) * int(faults.bound.sum())
    return records(
        len(jobs.work) + again,
        job=SHORT,
        number=SHORT,
        node=SHORT,
        record=SHORT,
        came=LONG,
        began=LONG,
        ended=LONG,
        ran=LONG,
        lost=LONG,
    )


def _tally() -> Records:
    """The one record of what is counted over all jobs, and of where to stop; at first nowhere."""
    tally = records(
        1,
        now=LONG,
        arrived=LONG,  # jobs that came for the first time
        arrivals=LONG,
        logged=LONG,
        events=LONG,
        events_before=LONG,  # this instant
        busy=LONG,  # GPU-ticks
        waiting=LONG,  # jobs
        waiting_gpus=LONG,  # that they ask for
        until=LONG,  # the loop stops before this tick
        watched=LONG,  # and after the instant at which this job has started; -1 for none
    )
    tally["until"], tally["watched"] = NEVER, -1
    return tally


@kernel
def next_event(state):  # type: ignore[no-untyped-def]
    """The tick of the next end or arrival, or at which a refused job may look elsewhere; `NEVER` if there is none.

    Rungs that passed unused, as nobody gave out GPUs to that job, are moved on first. Three tops of heaps and one entry
    of `submit`, which is sorted: no search.
    """
    tick = min(first_tick(state.ends), first_tick(state.returns))
    while first_tick(state.rungs) <= state.tally[0].now:
        _climb_later(state, pop(state.rungs))
    tick = min(tick, first_tick(state.rungs))
    i = state.tally[0].arrived
    return min(tick, state.submit[i]) if i < len(state.submit) else tick


@kernel
def begin_instant(state, now):  # type: ignore[no-untyped-def]
    """Go on to an instant at which something happens; ticks never go back."""
    state.tally[0].now = now
    state.tally[0].events_before = state.tally[0].events


@kernel
def end_of_events(state):  # type: ignore[no-untyped-def]
    """Count an instant at which nobody came or went as one event.

    The order changed of itself, or a rung was reached.
    """
    state.tally[0].events += state.tally[0].events == state.tally[0].events_before


@kernel
def due_end(state):  # type: ignore[no-untyped-def]
    """A job whose attempt ends now, in the order of the plain loop; -1 for none.

    The job is out of `ends` and still holds its GPUs: `finish` follows.
    """
    return pop(state.ends) if first_tick(state.ends) <= state.tally[0].now else -1


@kernel
def due_arrival(state):  # type: ignore[no-untyped-def]
    """A job that comes now, in the order of the plain loop; -1 for none.

    Jobs that come for the first time, by row, are before those that come back, by row. The job counts as waiting
    already.
    """
    i = state.tally[0].arrived
    if i < len(state.submit) and state.submit[i] <= state.tally[0].now:
        state.tally[0].arrived += 1
        return come(state, i)
    if first_tick(state.returns) <= state.tally[0].now:
        return come(state, pop(state.returns))
    return -1


@kernel
def come(state, row):  # type: ignore[no-untyped-def]
    """Submit a job now, and count it: the number in `came` orders jobs by when they last came."""
    state.tally[0].events += 1
    state.job[row].since = state.tally[0].now
    state.job[row].came = state.tally[0].arrivals
    state.tally[0].arrivals += 1
    _wait(state, row)
    return row


@kernel
def _wait(state, row):  # type: ignore[no-untyped-def]
    """Count a job, and the GPUs that it asks for, among those that wait."""
    state.tally[0].waiting += 1
    state.tally[0].waiting_gpus += state.job[row].gpus


@kernel
def remaining(state, row):  # type: ignore[no-untyped-def]
    """Ticks that the present attempt must still run, if no fault ends it.

    What is recorded and what preemptions have added, less what it ran up to now.
    """
    ran = state.job[row].before
    if state.job[row].resumed >= 0:
        ran += state.tally[0].now - state.job[row].resumed
    return state.work[state.job[row].record] + state.job[row].lost - ran


@kernel
def start(state, row):  # type: ignore[no-untyped-def]
    """Start a waiting job if there is room, and return whether it was started.

    The only way to let a job run. If there is no room nothing changes but when it may look one rung looser. The caller
    takes a started job out of wherever its policy keeps those that wait. ``O(log n)`` in the running jobs, besides the
    placement.
    """
    if not take(state.places, row, np.int64(state.job[row].gpus), state.tally[0].now):
        if state.places.relax and not holds(state.rungs, row):
            _climb_later(state, row)
        return False
    if state.places.relax:
        discard(state.rungs, row)
    _run(state, row)
    return True


@kernel
def _climb_later(state, row):  # type: ignore[no-untyped-def]
    """Note when a refused job may look one rung looser.

    The loop then has an instant at which everybody is tried again.
    """
    tick = next_rung(state.places, row, state.tally[0].now)
    if tick < NEVER:
        push(state.rungs, row, tick)


@kernel
def _run(state, row):  # type: ignore[no-untyped-def]
    """Start a job that has its GPUs: note when it ends, and, the first time, when its attempt and the job began."""
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
def preempt(state, row):  # type: ignore[no-untyped-def]
    """Make a job wait whose GPUs have been taken (`gpu_places.lift` and `forget`). What it ran is kept: it goes on from
    there, after its restart. A restart that was cut short begins again: only what was done of it is lost.

    The end that was expected leaves the heap at once, unlike in the plain loop, which skips it when it comes up.
    """
    discard(state.ends, row)
    ran = _stop(state, row)
    _wait(state, row)
    state.job[row].preempted += 1
    unfinished = max(np.int64(0), restart_due(state, row) - ran)
    state.job[row].lost += state.job[row].restart - unfinished


@kernel
def restart_due(state, row):  # type: ignore[no-untyped-def]
    """Ticks with which the present attempt begins when it runs next, or began: once preempted it restarts first."""
    return np.int64(state.job[row].restart if state.job[row].lost else 0)


@kernel
def _stop(state, row):  # type: ignore[no-untyped-def]
    """Count what a job ran that runs no longer, as run by the attempt and as GPU-ticks in which GPUs were busy.

    The ticks that it ran are returned.
    """
    ran = state.tally[0].now - state.job[row].resumed
    state.job[row].before += ran
    state.job[row].resumed = -1
    state.tally[0].busy += ran * state.job[row].gpus
    return ran


@kernel
def finish(state, row, asks):  # type: ignore[no-untyped-def]
    """End the attempt of a job that has run its time. One that failed comes back at once, unless `asks`.

    Its GPUs are free then, and the attempt is in the log. An attempt that a fault of a node ended is written as the
    recorded one that brought the fault, and the job's own record waits for the next try. With `asks` the retry policy
    says later whether and when it comes back.

    The last recorded attempt of a job ends it, passed or not: of a further one the trace knows nothing.
    """
    state.tally[0].events += 1
    until = note_nodes(state.questions, state.places, row)
    node = release(state.places, row, np.int64(state.job[row].gpus))
    _stop(state, row)
    state.job[row].tried += 1
    state.job[row].end = state.tally[0].now
    met, record = met_by(state.bad, row), np.int64(state.job[row].record)
    if met >= 0:
        record = state.bad.fault[met].record
    _write(state, row, record, node)
    if met >= 0:
        if is_over(state.bad, met):
            return
    elif state.passed[record] or record + 1 == state.first[row + 1]:
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
    """Put the attempt that is over into the log.

    `node` is its first one, `ran` what it ran in all, preempted or not.
    """
    log = state.log[state.tally[0].logged]
    log.job = row
    log.number = state.job[row].tried
    log.node = node
    log.record = record
    log.came = state.job[row].since
    log.began = state.job[row].began
    log.ended = state.tally[0].now
    log.ran = state.job[row].before
    log.lost = state.job[row].lost
    state.tally[0].logged += 1


@kernel
def apply_answers(state):  # type: ignore[no-untyped-def]
    """Requeue jobs as the answers to the questions say; a job that does not come back is over.

    Then there are no questions.
    """
    questions = state.questions
    for i in range(questions.tally[0].many):
        if questions.about[i].back != OVER:
            _come_back(state, questions.about[i].row, questions.about[i].back)
    questions.tally[0].many = 0
    questions.tally[0].nodes = 0


@kernel
def _come_back(state, row, tick):  # type: ignore[no-untyped-def]
    """Requeue a job whose attempt failed, at a tick, with its next attempt, of which nothing has been run."""
    state.job[row].before = 0
    state.job[row].lost = 0
    state.job[row].began = -1
    push(state.returns, row, tick)
