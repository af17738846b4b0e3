"""Runs the compiled loop, and asks a retry policy in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from perdure.model.cluster import Cluster
from perdure.scheduling.backfill import Conservative, Easy
from perdure.scheduling.capacity import Capacity
from perdure.scheduling.drf import DominantShare
from perdure.scheduling.fifo import Fifo
from perdure.scheduling.las import Gittins2D, LeastAttained
from perdure.scheduling.philly import Philly
from perdure.scheduling.placement.nodes import Placement
from perdure.scheduling.placement.registry import room_of
from perdure.scheduling.placement.room import Room
from perdure.scheduling.protocol import Policy
from perdure.scheduling.shortest import FewestGpus, ShortestJob, ShortestRemaining, ShortestService
from perdure.scheduling.turns import Turns
from perdure.simulation.asking import Failed, Retry
from perdure.simulation.compiled import anew, backfill, once, philly
from perdure.simulation.compiled.kernel import code_for
from perdure.simulation.compiled.lending import lending_of
from perdure.simulation.compiled.levels import ATTAINED, GITTINS, GPUS, REMAINING, REMAINING_SERVICE, Rules, levels_of
from perdure.simulation.compiled.places import COUNT, KINDS, empty_places, keep_off
from perdure.simulation.compiled.questions import OVER
from perdure.simulation.compiled.state import DONE, State, state_of
from perdure.simulation.faults import NodeFaults
from perdure.simulation.outcome import Outcome
from perdure.simulation.workload import Workload
from perdure.simulation.world import view_of


class Loop(NamedTuple):
    """A compiled loop, and what it knows beside the state."""

    advance: Callable[..., Any]
    part: tuple[Any, ...]


def compiled(jobs: Workload, cluster: Cluster, policy: Policy, placement: Placement | None) -> Loop | None:
    """The compiled loop for a policy, or None where only the plain loop knows it."""
    if placement is not None and placement.name not in KINDS:
        return None
    if type(policy) is Fifo or type(policy) is ShortestJob:
        queues = (once.one_queue if policy.blocks else once.by_size)(jobs, type(policy) is ShortestJob)
        return Loop(once.advance, queues)
    if type(policy) is Capacity or type(policy) is DominantShare:
        turns: Turns = policy.ranking(view_of(jobs, cluster.total_gpus))
        owners = once.by_owner(np.asarray(turns.owner, np.int64), np.asarray(turns.due, np.float64))
        return Loop(once.advance, owners)
    if type(policy) is Easy or type(policy) is Conservative:
        part = backfill.backfill_of(jobs, type(policy) is Conservative, cluster.total_gpus)
        return Loop(backfill.advance, part)
    if type(policy) is Philly:
        quota = np.array(policy.ranking(view_of(jobs, cluster.total_gpus)).quota)
        lending = lending_of(jobs, quota, policy.crowded * cluster.total_gpus, cluster.total_gpus)
        return Loop(philly.advance, lending)
    rules = _rules(jobs, policy)
    if rules is not None:
        return Loop(anew.advance, levels_of(jobs, rules, cluster.total_gpus))
    return None


def _rules(jobs: Workload, policy: Policy) -> Rules | None:
    """How a policy that gives all GPUs anew ranks jobs; None for one that is not known here."""
    by_type = {ShortestRemaining: REMAINING, ShortestService: REMAINING_SERVICE, FewestGpus: GPUS}
    if type(policy) in by_type and not getattr(policy, "inert", True):
        return Rules(by_type[type(policy)])
    if not isinstance(policy, LeastAttained) or type(policy) not in (LeastAttained, Gittins2D):
        return None
    limits = np.array([round(limit * jobs.ticks_per_s) for limit in policy.queue_limits], np.int64)
    options = policy.counts_gpus, float(policy.promote_knob), policy.late_demotion, policy.resets_on_retry, limits
    if not isinstance(policy, Gittins2D):
        return Rules(ATTAINED, *options)
    table = policy.steps(view_of(jobs, 0))
    ranks = np.unique(-table.ranks, return_inverse=True)[1].astype(np.int64)
    return Rules(GITTINS, *options, table.bounds, ranks)


def replay(
    jobs: Workload,
    cluster: Cluster,
    loop: Loop,
    placement: Placement | None,
    retry: Retry | None,
    faults: NodeFaults | None = None,
) -> Outcome:
    """Replay all jobs; as `plain.replay`."""
    kind = COUNT if placement is None else KINDS[placement.name]
    relax = 0 if placement is None else round(placement.relax_s * jobs.ticks_per_s)
    state = state_of(jobs, empty_places(cluster, kind, relax, len(jobs)), faults)
    empty = room_of(cluster, placement, jobs.ticks_per_s)  # knows which nodes a job can be kept off
    asks, resumed = retry is not None, False
    advance = code_for(loop.advance, state, loop.part, asks, resumed)
    while advance(state, loop.part, asks, resumed) != DONE:
        resumed = True
        assert retry is not None
        state = _answered(jobs, state, empty, retry)
    return _outcome(state)


def _outcome(state: State) -> Outcome:
    log = state.log[: int(state.tally[0]["logged"])]
    start, end, preempted, promoted = (state.job[name] for name in ("start", "end", "preempted", "promoted"))
    return Outcome(
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
        int(state.tally[0]["events"]),
        int(state.tally[0]["busy"]),
    )


def _answered(jobs: Workload, state: State, empty: Room, retry: Retry) -> State:
    """Put all questions to the retry policy, and write its answers down."""
    now, questions = int(state.tally[0]["now"]), state.questions
    asked = questions.about[: int(questions.tally[0]["many"])]
    nodes = questions.nodes[: int(questions.tally[0]["nodes"])].tolist()
    places, first, backs = state.places, 0, []
    for row, number, record, ran, bad, until, _ in asked.tolist():
        had, first = tuple(nodes[first:until]), until
        times = jobs.seconds(now), ran / jobs.ticks_per_s
        avoided = empty.avoided.get(row, frozenset())
        answer = retry(Failed(row, number, record, *times, had, bad, avoided, empty.n_nodes))
        backs.append(OVER if answer is None else now + round(answer.delay_s * jobs.ticks_per_s))
        if answer is not None and answer.avoid:
            empty.avoid(row, int(state.job[row]["gpus"]), answer.avoid)
            kept_off = empty.avoided.get(row, avoided)
            if kept_off != avoided:
                places = keep_off(places, row, sorted(kept_off))
    asked["back"] = backs
    return state._replace(places=places)
