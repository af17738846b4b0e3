"""Actions on the embedded cluster: which are carried out, refused, or have been overtaken by events."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.backends.local.core import Core
from perdure.backends.local.records import LocalJob, LocalNode
from perdure.model.actions import (
    Action,
    Cancel,
    Down,
    Exclude,
    Extend,
    Hold,
    JobAction,
    NodeAction,
    Outcome,
    OutcomeStatus,
    Preempt,
    Release,
    Requeue,
    Undrain,
)
from perdure.model.jobs import AttemptState, JobState

DONE = Outcome(OutcomeStatus.DONE)


def perform(core: Core, cluster: str, action: Action, now: float) -> Outcome:
    """Carry out an action that has not been carried out before, and return the result."""
    if isinstance(action, NodeAction):
        return _on_node(core, action, now)
    job = core.jobs.get(action.attempt.job_id)
    if job is None or action.attempt.cluster != cluster:
        return _superseded("no such job is known")
    if action.attempt.incarnation > job.incarnation:
        return Outcome(OutcomeStatus.REFUSED, f"the job has not started {action.attempt.incarnation} times")
    if action.attempt.incarnation < job.incarnation:
        return _superseded(f"attempt {job.incarnation} has started since")
    return action.taken(job.spec.user) or _on_job(core, job, action, now)


def _on_node(core: Core, action: NodeAction, now: float) -> Outcome:
    node = core.nodes.get(action.node)
    if node is None:
        return Outcome(OutcomeStatus.REFUSED, f"no node is called {action.node!r}")
    if isinstance(action, Undrain):
        return _into_service(core, node, now)
    if isinstance(action, Down):
        if node.down:
            return Outcome(OutcomeStatus.DONE, f"was down already: {node.down}")
        core.set_down(node.name, action.reason, now)
    elif node.drained is not None:
        return Outcome(OutcomeStatus.DONE, f"was drained already: {node.drained}")
    else:
        core.put_node(replace(node, drained=action.reason, since_s=now))
    return DONE


def _into_service(core: Core, node: LocalNode, now: float) -> Outcome:
    if node.drained is None and not (node.down and node.fault is None):
        return _superseded("the node is not out of service by our doing")
    core.put_node(replace(node, drained=None, since_s=now))
    core.set_up(node.name, now)
    return DONE


def _on_job(core: Core, job: LocalJob, action: JobAction, now: float) -> Outcome:
    match action:
        case Requeue():
            return _requeue(core, job, action, now)
        case Preempt():
            return _preempt(core, job, now)
        case Cancel():
            return _cancel(core, job, now)
        case Exclude():
            return _exclude(core, job, action)
        case Extend():
            return _extend(core, job, action)
        case Hold():
            if job.state is not JobState.PENDING:
                return _superseded(f"the job is {job.state}")
            core.put_job(replace(job, state=JobState.HELD, reason="JobHeldUser"))
        case Release():
            if job.state is not JobState.HELD:
                return _superseded(f"the job is {job.state}")
            core.put_job(replace(job, state=JobState.PENDING, reason=""))
        case _:
            return Outcome(OutcomeStatus.REFUSED, f"the embedded cluster cannot {action.kind} a job")
    return DONE


def _requeue(core: Core, job: LocalJob, action: Requeue, now: float) -> Outcome:
    if job.state is not JobState.FAILED:
        return _superseded(f"the job is {job.state}")
    if not job.may_restart:
        why = f"it has been requeued {job.restarts} times" if job.spec.may_requeue else "its owner forbids requeues"
        return Outcome(OutcomeStatus.REFUSED, why)
    placed = _placed(core, job, action)
    if isinstance(placed, Outcome):
        return placed
    core.put_job(
        replace(
            placed,
            state=JobState.PENDING,
            reason="",
            restarts=job.restarts + 1,
            eligible_s=now + action.delay_s,
            end_s=None,
        )
    )
    return DONE


def _exclude(core: Core, job: LocalJob, action: Exclude) -> Outcome:
    if not job.state.is_waiting:
        return _superseded(f"the job is {job.state}")
    placed = _placed(core, job, action)
    if isinstance(placed, Outcome):
        return placed
    core.put_job(placed)
    return DONE


def _extend(core: Core, job: LocalJob, action: Extend) -> Outcome:
    if job.state is not JobState.RUNNING:
        return _superseded(f"the job is {job.state}")
    if job.spec.walltime_s is None or job.spec.walltime_s >= action.walltime_s:
        return Outcome(OutcomeStatus.DONE, "it has that long already")
    core.put_job(replace(job, spec=replace(job.spec, walltime_s=action.walltime_s)))
    return DONE


def _placed(core: Core, job: LocalJob, action: Requeue | Exclude) -> LocalJob | Outcome:
    """The job kept off more nodes, and on as many as asked for, or a refusal where it could never start there."""
    known = [name for name in action.exclude if name in core.nodes]
    excluded = tuple(dict.fromkeys([*(name for name in job.excluded if name not in action.lift), *known]))
    left, needed = core.candidates(job.spec, excluded), action.node_count or job.node_count
    if left < needed:
        return Outcome(OutcomeStatus.REFUSED, f"{left} nodes would be left, the job needs {needed}")
    required = tuple(name for name in job.required if name not in excluded)
    return replace(job, excluded=excluded, required=required, resized=action.node_count or job.resized)


def _preempt(core: Core, job: LocalJob, now: float) -> Outcome:
    attempt = core.running.get(job.job_id)
    if attempt is None or attempt.ending is not None:
        return _superseded("the job does not run, or is about to end")
    if not job.may_restart:
        return Outcome(OutcomeStatus.REFUSED, "its owner forbids requeues, or it has had as many as allowed")
    core.end_attempt(attempt, AttemptState.REQUEUED, "it made room for another job", now)
    return DONE


def _cancel(core: Core, job: LocalJob, now: float) -> Outcome:
    if job.state.is_over:
        return _superseded(f"the job is {job.state}")
    attempt = core.running.get(job.job_id)
    if attempt is None:
        core.put_job(replace(job, state=JobState.CANCELLED, reason="cancelled", end_s=now))
    else:
        core.end_attempt(attempt, AttemptState.CANCELLED, "cancelled", now)
    return DONE


def _superseded(detail: str) -> Outcome:
    return Outcome(OutcomeStatus.SUPERSEDED, detail)
