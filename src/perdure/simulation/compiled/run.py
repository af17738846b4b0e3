"""Runs the compiled loop, and asks a retry policy in between.

The edge between Python and compiled code: it makes the part and the state, calls the entry until it is `DONE`, answers
its questions, and reads the outcome from the arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from perdure.model.cluster import Cluster
from perdure.scheduling.placement.nodes import Placement, relax_ticks
from perdure.scheduling.placement.registry import room_of
from perdure.scheduling.placement.room import Room
from perdure.scheduling.protocol import Policy
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.compiled.gpu_places import COUNT, KINDS, empty_places, keep_off
from perdure.simulation.compiled.kernel import code_for
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.compiled.retry_queries import OVER
from perdure.simulation.compiled.state import DONE, State, state_of
from perdure.simulation.faults import NodeFaults
from perdure.simulation.outcome import ReplayOutcome
from perdure.simulation.retry_hook import FailedRun, Retry
from perdure.simulation.workload import Workload


class Loop(NamedTuple):
    """A compiled loop, and the part of its policy: what it knows besides the state."""

    advance: Callable[..., Any]
    part: tuple[Any, ...]


def compiled(jobs: Workload, cluster: Cluster, policy: Policy, placement: Placement | None) -> Loop | None:
    """The compiled loop for a policy, or None where only the plain loop knows it, or knows the placement.

    None is no failure: the caller takes the plain loop, whose schedule is the same. The policy's very class decides,
    for one that derives from it may schedule otherwise.
    """
    if type(policy) not in COMPILED or (placement is not None and placement.name not in KINDS):
        return None
    if placement is not None and isinstance(policy, Slurm) and policy.settings.on_nodes:
        return None
    module = import_module(f"{__package__}.{COMPILED[type(policy)]}")
    part = module.prepare(policy, jobs, cluster.total_gpus)
    return None if part is None else Loop(module.advance, part)


def replay(
    jobs: Workload,
    cluster: Cluster,
    loop: Loop,
    placement: Placement | None,
    retry: Retry | None,
    faults: NodeFaults | None = None,
) -> ReplayOutcome:
    """Replay all jobs; as `plain.replay`, to the tick.

    `retry` None goes through the recorded attempts as they are. With a retry policy the loop returns at each instant at
    which attempts failed, and goes on with the answers to all of them.
    """
    kind = COUNT if placement is None else KINDS[placement.name]
    relax = 0 if placement is None else relax_ticks(placement, jobs.ticks_per_s)
    state = state_of(jobs, empty_places(cluster, kind, relax, len(jobs)), faults)
    empty = room_of(cluster, placement, jobs.ticks_per_s)  # knows which nodes a job can be kept off
    asks, resumed = retry is not None, False
    advance = code_for(loop.advance, state, loop.part, asks, resumed)
    while advance(state, loop.part, asks, resumed) != DONE:
        resumed = True
        assert retry is not None
        state = _answered(jobs, state, empty, retry)
    return _outcome(state)


def _outcome(state: State) -> ReplayOutcome:
    """The outcome from the log and the jobs, once all is over; times are still ticks."""
    log = state.log[: int(state.tally[0]["logged"])]
    start, end, preempted, promoted = (state.job[name] for name in ("start", "end", "preempted", "promoted"))
    return ReplayOutcome(
        start,
        end,
        preempted,
        promoted,
        log["job"],
        log["number"],
        log["came"],
        log["began"],
        log["ended"],
        log["ran"],
        log["node"],
        log["record"],
        log["lost"],
        int(state.tally[0]["events"]),
        int(state.tally[0]["busy"]),
    )


def _answered(jobs: Workload, state: State, empty: Room, retry: Retry) -> State:
    """Put all questions to the retry policy, in the order in which attempts ended, and write its answers down.

    A delay counts from this instant, in seconds. Nodes to avoid are those that the room of the plain loop agrees to: a
    job is never kept off so many that it has no place left.
    """
    now, questions = int(state.tally[0]["now"]), state.questions
    asked = questions.about[: int(questions.tally[0]["many"])]
    nodes = questions.nodes[: int(questions.tally[0]["nodes"])].tolist()
    places, first, backs = state.places, 0, []
    for row, number, record, ran, bad, until, _ in asked.tolist():
        had, first = tuple(nodes[first:until]), until
        times = jobs.seconds(now), ran / jobs.ticks_per_s
        avoided = empty.avoided.get(row, frozenset())
        answer = retry(FailedRun(row, number, record, *times, had, bad, avoided, empty.n_nodes))
        backs.append(OVER if answer is None else now + round(answer.delay_s * jobs.ticks_per_s))
        if answer is not None and answer.avoid:
            empty.avoid(row, int(state.job[row]["gpus"]), answer.avoid)
            kept_off = empty.avoided.get(row, avoided)
            if kept_off != avoided:
                places = keep_off(places, row, sorted(kept_off))
    asked["back"] = backs
    return state._replace(places=places)
