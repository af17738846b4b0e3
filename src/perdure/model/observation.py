"""One look at a cluster, and what has changed since the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.model.events import (
    AttemptEnded,
    AttemptStarted,
    ClusterEvent,
    JobChanged,
    JobGone,
    NodeChanged,
    NodeGone,
    SightChanged,
)
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, begins_anew
from perdure.model.nodes import Node, NodeState

MANAGER = "controller"
"""The part of a cluster, in `Observation.unseen`, that knows its jobs and nodes."""
FORGOTTEN = "its resource manager has forgotten this start"
GONE = "its resource manager does not know it any more: if it is still wanted, submit it again"
REMEMBERED_S = 24 * 60 * 60.0
"""How long a reported end is remembered: a part that could not be asked, or a clock set back, may report it again."""


class Observation(Struct, frozen=True):
    """What a resource manager says at one instant.

    `attempts` holds what runs, and what ended since the instant that was asked for; more is harmless.
    `unseen` names each part that could not be asked, with the reason. A part that is unseen proves nothing:
    a job that is missing while the controller is unseen is not gone.
    `only` names the jobs that were looked at, where it was not all: what is not mentioned is then as it was.
    """

    cluster: str
    time_s: float
    jobs: tuple[Job, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    nodes: tuple[Node, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)  # part -> why
    only: frozenset[str] | None = None  # job ids


class Known(Struct, frozen=True):
    """What was seen so far, as far as `changes` needs it. Bounded: jobs that are over and unseen are forgotten."""

    jobs: Mapping[str, Job] = field(default_factory=dict)  # by job id
    running: Mapping[AttemptId, Attempt] = field(default_factory=dict)
    missing: Mapping[AttemptId, float] = field(default_factory=dict)  # ran, is not mentioned: since when
    ended: Mapping[AttemptId, float] = field(default_factory=dict)  # ends reported: when each was last mentioned
    nodes: Mapping[str, Node] = field(default_factory=dict)
    unseen: Mapping[str, str] = field(default_factory=dict)
    stories: Mapping[str, float] = field(default_factory=dict)  # by job id: its submit, where another had the id before


def changes(known: Known, seen: Observation, *, grace_s: float = 30.0) -> tuple[Known, list[ClusterEvent]]:
    """Compare one look with what was known: the new knowledge, and the facts that lie between the two.

    Pure and idempotent: looking twice at the same thing yields nothing the second time. Events come in the order nodes,
    jobs, ends, starts, so that whoever hears of an end already knows what the nodes and the job did. An end that a look
    mentions again is not reported again, unless it went unmentioned for `REMEMBERED_S` seconds. An attempt that ran,
    and has not been mentioned for `grace_s` seconds by a controller that answers (accounting may lag), ended unseen:
    `NODE_FAIL` where one of its nodes is down, else `LOST`; so is that of a job which the controller has forgotten,
    whatever its nodes do.
    """
    now = seen.time_s
    if seen.only is not None:
        seen = replace(seen, unseen=known.unseen)
    events: list[ClusterEvent] = [
        SightChanged(now, seen.cluster, part, seen.unseen.get(part, ""))
        for part in sorted({*known.unseen, *seen.unseen})
        if known.unseen.get(part) != seen.unseen.get(part)
    ]
    nodes = _nodes_after(known, seen)
    events += [
        NodeChanged(now, seen.cluster, node) for node in seen.nodes if _is_notable(node, known.nodes.get(node.name))
    ]
    events += [NodeGone(now, seen.cluster, name) for name in known.nodes if name not in nodes]
    jobs = _jobs_after(known, seen)
    events += [JobChanged(now, job) for job in seen.jobs if _is_other(job, known.jobs.get(job.job_id))]

    mentioned = {attempt.id for attempt in seen.attempts}
    running = {a.id: a for a in seen.attempts if not a.state.is_over}
    missing: dict[AttemptId, float] = {}
    ends = [a for a in seen.attempts if a.state.is_over and a.id not in known.ended]
    for attempt_id, attempt in known.running.items():
        if attempt_id in mentioned:
            continue
        since = known.missing.get(attempt_id, now)
        if "controller" in seen.unseen or seen.only is not None:  # silence: what ran may run still
            running[attempt_id] = attempt
            missing |= {attempt_id: known.missing[attempt_id]} if attempt_id in known.missing else {}
        elif now - since < grace_s:
            running[attempt_id], missing[attempt_id] = attempt, since
        else:
            ends.append(_ended_unseen(attempt, jobs.get(attempt_id.job_id), nodes, since))
    ends.sort(key=lambda attempt: attempt.end_s or now)  # who has waited longest is answered first
    events += [AttemptEnded(now, attempt, jobs.get(attempt.id.job_id)) for attempt in ends]
    events += [AttemptStarted(now, a) for i, a in running.items() if i not in known.running]

    gone, lingering = _gone(known, jobs, seen, ends, running)
    events += gone

    last = ((i, now if i in mentioned else at) for i, at in known.ended.items())
    ended = {i: at for i, at in last if now - at < REMEMBERED_S}
    ended |= {attempt.id: now for attempt in ends}
    jobs = {**jobs, **lingering} if lingering else jobs
    return Known(jobs, running, missing, ended, nodes, dict(seen.unseen), _stories_after(known, seen, jobs)), events


def _ended_unseen(attempt: Attempt, job: Job | None, nodes: Mapping[str, Node], since: float) -> Attempt:
    down = tuple(n for n in attempt.nodes if n in nodes and nodes[n].state is NodeState.DOWN) if job else ()
    state = AttemptState.NODE_FAIL if down else AttemptState.LOST
    reason = f"node {down[0]} is down: {nodes[down[0]].reason}" if down else FORGOTTEN
    return replace(attempt, state=state, end_s=since, reason=reason, failed_nodes=down)


def _is_other(job: Job, before: Job | None) -> bool:
    return job is not before and job != before  # the same object need not be compared by its many fields


def _is_notable(node: Node, before: Node | None) -> bool:
    """Whether a change is worth an event: GPUs in use come and go with every job and are not."""
    if node is before or before is None:
        return before is None
    moved = set(node.partitions) != set(before.partitions)
    return moved or (node.state, node.reason, node.gpus) != (before.state, before.reason, before.gpus)


def _nodes_after(known: Known, seen: Observation) -> dict[str, Node]:
    """A node that a look at all of them does not mention was taken out of the cluster."""
    told = {node.name: node for node in seen.nodes}
    is_whole = told and not seen.unseen and seen.only is None
    return told if is_whole else {**known.nodes, **told}


def _jobs_after(known: Known, seen: Observation) -> dict[str, Job]:
    if "controller" in seen.unseen or seen.only is not None:
        return {**known.jobs, **{job.job_id: job for job in seen.jobs}}
    return {job.job_id: job for job in seen.jobs}


def _stories_after(known: Known, seen: Observation, jobs: Mapping[str, Job]) -> Mapping[str, float]:
    before = ((job, known.jobs.get(job.job_id)) for job in seen.jobs)
    begun = {job.job_id: job.submit_s for job, was in before if was and job is not was and begins_anew(was, job)}
    kept = {job_id: story_s for job_id, story_s in known.stories.items() if job_id in jobs}
    return {**kept, **begun}


def _gone(
    known: Known,
    jobs: Mapping[str, Job],
    seen: Observation,
    ends: Sequence[Attempt],
    running: Mapping[AttemptId, Attempt],
) -> tuple[list[ClusterEvent], dict[str, Job]]:
    """What happened to jobs that were not over and are not mentioned any more, and those whose end is not known yet.

    What waited was cancelled, unless it was the rest of an array: its record is now that of a task. How a job that ran
    has ended is reported by its attempt.
    """
    missing = [job for job_id, job in known.jobs.items() if job_id not in jobs and not job.state.is_over]
    if not missing:
        return [], {}
    arrays = {job_id.partition("_")[0] for job_id in jobs if "_" in job_id}
    ended = {attempt.id.job_id: attempt.state for attempt in (*seen.attempts, *ends) if attempt.state.is_over}
    live = {attempt_id.job_id for attempt_id in running}
    events: list[ClusterEvent] = []
    for job in missing:
        if job.job_id in arrays:
            events.append(JobGone(seen.time_s, job))
        elif job.job_id not in live:
            state = _JOB_STATES.get(ended.get(job.job_id, AttemptState.CANCELLED), JobState.FAILED)
            reason = GONE if job.state.is_waiting else job.reason
            events.append(JobChanged(seen.time_s, replace(job, state=state, reason=reason)))
    return events, {job.job_id: job for job in missing if job.job_id in live}


_JOB_STATES = {
    AttemptState.COMPLETED: JobState.COMPLETED,
    AttemptState.CANCELLED: JobState.CANCELLED,
    AttemptState.REQUEUED: JobState.CANCELLED,
}
