"""Who recovers a failed attempt, by which actions, in which words. Pure."""

from __future__ import annotations

from perdure.coordination.record import Component
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.model.actions import Action, Exclude, Hold, Release, Requeue
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.decide import Decision
from perdure.service.core.case import Case
from perdure.slurm_words.reasons import ENDS_OF_ATTEMPTS, HELD_BY_ADMIN, SPECIAL_EXIT, is_given_up, is_put_back_held

_WAITS_HELD = (
    "put back after a node failure, but held (JobHeldAdmin): by an operator, or by Slurm itself, which so holds what"
    " was suspended; nothing starts it until somebody runs"
)

Recovery = tuple[Component, Ruling]


def recovery_of(case: Case, attempt: Attempt, decision: Decision) -> Recovery:
    """The owner and its verdict.

    A resource manager that has put the job back has recovered it: that is never doubled. What is left to us is
    to keep the new attempt off the node that failed, and to hold a job that can only fail again.
    """
    job = case.job
    if case.moved_on:
        cause = f"{case.failure.verdict.summary}: " if case.failure and case.failure.verdict else ""
        return Component.RESOURCE_MANAGER, handled(f"{cause}a newer attempt runs already")
    if job.state is JobState.PENDING or _held_by_its_manager(job):
        return _amend(job, attempt, decision)
    if job.state is JobState.HELD and attempt.state is AttemptState.NODE_FAIL and job.reason == HELD_BY_ADMIN:
        return Component.RESOURCE_MANAGER, declined(f"{_WAITS_HELD} scontrol release {job.job_id}")
    if job.state is JobState.HELD and job.reason == SPECIAL_EXIT:
        rule = f"held as {SPECIAL_EXIT}, by the site's rule for its exit code or by a person"
        return Component.RESOURCE_MANAGER, handled(f"{rule}; {decision.reason}")
    if job.state is JobState.HELD:
        return Component.JOB, handled(f"a person holds the job; {decision.reason}")
    if not decision.retries:
        return Component.SCHEDULER, handled(decision.reason, ends_job=True)
    requeue = Requeue(attempt.id, decision.exclude, decision.delay_s, decision.node_count, lift=decision.lift)
    return Component.SCHEDULER, handled(decision.reason, requeue)


def _amend(job: Job, attempt: Attempt, decision: Decision) -> Recovery:
    """The job waits again by its manager's own requeue."""
    held = job.state is JobState.HELD
    if not decision.retries:
        if held or not job.may_requeue or job.wish is not job.wish.AUTO:
            return Component.RESOURCE_MANAGER, handled(f"requeued by the resource manager; {decision.reason}")
        why = f"held, though the resource manager requeued it: {decision.reason}"
        return Component.SCHEDULER, handled(why, Hold(attempt.id), ends_job=True)
    exclude = tuple(n for n in decision.exclude if n not in job.excluded)
    resized = decision.node_count not in (0, job.node_count)
    actions: list[Action] = []
    if exclude or resized or decision.lift:
        actions.append(Exclude(attempt.id, exclude, decision.node_count, lift=decision.lift))
    if held:
        note = f"to be released after {job.reason}: {decision.reason}"
        return Component.SCHEDULER, handled(note, *actions, Release(attempt.id))
    where = f", to be kept off {', '.join(exclude)}" if exclude else ""
    where += f", to start on {decision.node_count}" if resized else ""
    note = f"requeued by the resource manager{where}; {decision.reason}"
    return Component.RESOURCE_MANAGER, handled(note, *actions)


def _held_by_its_manager(job: Job) -> bool:
    """True where no person but the resource manager's own giving up holds the job."""
    return job.state is JobState.HELD and is_given_up(job.reason)


def is_not_as_left(job: Job) -> bool:
    """True of a job that is not as a retry leaves it: failed, put back and not released, or unable to start."""
    held = job.state is JobState.HELD and is_put_back_held(job.reason)
    return held or (job.state is JobState.FAILED and job.reason in ENDS_OF_ATTEMPTS)
