"""Faults inside one job: of its launcher, its program, one of its processes."""

from __future__ import annotations

from perdure.coordination.record import Annotation, AnswerKind, ExceptionRecord
from perdure.coordination.ruling import Ruling, declined, handled
from perdure.coordination.site import SiteFacts
from perdure.model.actions import Extend
from perdure.model.identity import AttemptId

LOOK_AGAIN_S = 5.0
GRANTED_SHARE, MOST_GRANTED_S = 0.25, 3600.0


def retry(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Leave the recovery to the end of the attempt, which is an exception of its own; wait for that."""
    attempt = record.attempt
    if attempt is None:
        return declined("it is about no job")
    ended_by = site.failure_of(attempt)
    if ended_by:
        return handled(f"its attempt has ended, and is recovered as {ended_by}")
    return Ruling(AnswerKind.DEFERRED, "its attempt still runs", until_s=now + LOOK_AGAIN_S)


def grant_time(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:  # noqa: ARG001
    """Extend a job that nears its walltime: by a quarter, an hour at most; a budget bounds how often."""
    attempt, job = record.attempt, site.job(record.subject.job_id)
    if attempt is None or job is None or job.walltime_s is None:
        return declined("it is about no job with a walltime")
    more_s = min(MOST_GRANTED_S, GRANTED_SHARE * job.walltime_s)
    running = AttemptId(attempt.cluster, attempt.job_id, attempt.incarnation or site.latest(attempt.job_id))
    longer = Extend(running, job.walltime_s + more_s)
    return handled(f"it may run {more_s / 60:.0f} min longer", longer, forbids=("requeue",))


def count_starts(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Say how often the resource manager has tried already."""
    job = site.job(record.subject.job_id)
    if job is None:
        return declined("nothing is known of the job")
    note = f"started {job.restarts + 1} times"
    return _noted(record, "starts", str(job.restarts + 1), note, now)


def name_signal(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:
    """Say how the nodes of a process that died are: a healthy node speaks for the program."""
    known = [node for name in record.subject.nodes if (node := site.node(name)) is not None]
    if not known:
        return declined("nothing is known of its node")
    states = ", ".join(f"{node.name} {node.state}" for node in known[:8])
    return _noted(record, "nodes", states, f"its nodes: {states}", now)


def fail_task(record: ExceptionRecord, site: SiteFacts, now: float) -> Ruling:  # noqa: ARG001
    """What can only fail again is not tried again: its owner has to fix it."""
    return handled("it can only fail again until its owner fixes it", forbids=("requeue", "resubmit"), ends_job=True)


def _noted(record: ExceptionRecord, key: str, value: str, note: str, now: float) -> Ruling:
    if any(a.key == key for a in record.annotations):
        return declined(note)
    annotation = Annotation("resource_manager", now, key, value)
    return Ruling(AnswerKind.ANNOTATED, note, annotations=(annotation,))
