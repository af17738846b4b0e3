"""Jobs that submit their own successor: to put one back alongside it would run two copies in one directory. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perdure.model.jobs import Attempt, Job, JobState

TOGETHER_S = 1.0  # at most, between two submissions of one loop; instants are whole seconds


def successor_of(job: Job, attempt: Attempt, known: Mapping[str, Job]) -> str:
    """What to say of the job that goes on in the place of `job`, of which `attempt` is the latest; "" without one.

    It was submitted since the attempt started, by the same user under the same name in the same directory: on a node of
    the attempt, or by a script that submits jobs, while it ran (`_own`: such a one may have failed already, and is
    decided on by itself); or it is live, and has the same script and came after the attempt's end (`_submitted_anew`),
    or has the same command, from another session than the job itself, and is the only one of its kind. Who submits
    twenty alike means twenty jobs.

    A script that submitted other jobs from the attempt's node would submit them again.
    """
    if not job.work_dir:
        return ""
    mine = [other for other in known.values() if other.user == job.user and _number(other) != _number(job)]
    alike = [other for other in mine if (other.name, other.work_dir) == (job.name, job.work_dir)]
    if own := _own(job, attempt, alike):
        return f"it has submitted its own successor, job {own.job_id}"
    resubmitted = _submitted_anew(job, attempt, alike)
    live = [other for other in alike if not other.state.is_over]
    for other in live:
        if _is_younger(other, job, attempt):
            is_only_one = len(live) == 1 and _may_be_its_own(other, job, attempt)
            if not (is_only_one or other in resubmitted):
                continue
            if other.submit_s <= (attempt.end_s or other.submit_s):
                return f"it has submitted its own successor, job {other.job_id}"
            return f"job {other.job_id}, submitted since under its name in its directory, takes its place"
    others = [other for other in mine if attempt.resubmits and _is_younger(other, job, attempt)]
    sent = next((other for other in others if _in_its_time(other, attempt) and _comes_from(other, attempt)), None)
    return f"it has submitted job {sent.job_id}, and would submit it again" if sent else ""


def _own(job: Job, attempt: Attempt, alike: Sequence[Job]) -> Job | None:
    """The one that the attempt itself submitted, as far as that can be told, whatever happened to it meanwhile."""
    younger = [o for o in alike if _is_younger(o, job, attempt) and o.state is not JobState.CANCELLED]
    from_its_node = [other for other in younger if _comes_from(other, attempt)]
    sent = [o for o in younger if attempt.resubmits and _may_be_its_own(o, job, attempt) and _in_its_time(o, attempt)]
    alone = sent if len({_number(other) for other in sent}) == 1 else []
    return next(iter([*from_its_node, *alone]), None)


def _is_younger(other: Job, job: Job, attempt: Attempt) -> bool:
    """What was put back was not submitted again, whatever instant it bears."""
    return not other.restarts and other.submit_s >= attempt.start_s and _number(other) > _number(job)


def _may_be_its_own(other: Job, job: Job, attempt: Attempt) -> bool:
    """Whether it has the same command, or any where the attempt's script submits jobs, from another session."""
    same_command = other.command == job.command or attempt.resubmits
    return same_command and other.submitted_from != job.submitted_from


def _in_its_time(other: Job, attempt: Attempt) -> bool:
    """Instants are whole seconds."""
    return other.submit_s <= (math.inf if attempt.end_s is None else attempt.end_s + TOGETHER_S)


def _submitted_anew(job: Job, attempt: Attempt, alike: Sequence[Job]) -> list[Job]:
    """Those that run the same script, submitted after the attempt's end: from wherever, they take a failed job's place.

    Not so where a loop still submits what it began with `job`, or where there are more of them than jobs that failed.
    """
    if attempt.end_s is None:
        return []
    first = [other for other in alike if not other.restarts and other.state is not JobState.CANCELLED]
    same = [other for other in first if _runs_the_same(other, job)]
    last_s = job.submit_s  # of those that were submitted together with it
    for other in sorted(same, key=lambda one: one.submit_s):
        if last_s <= other.submit_s <= last_s + TOGETHER_S:
            last_s = other.submit_s
    since = [other for other in same if other.submit_s > max(attempt.end_s, last_s) and _number(other) > _number(job)]
    failed = {_number(o) for o in same if o.state is JobState.FAILED and o.submit_s <= attempt.end_s}
    return since if len({_number(other) for other in since}) <= 1 + len(failed) else []


def _runs_the_same(other: Job, job: Job) -> bool:
    """Where there is no file, nobody knows what one session's jobs run; a task of an array takes that task's place."""
    is_known = job.command or other.submitted_from != job.submitted_from
    tasks = {_task(other), _task(job)}
    return other.command == job.command and bool(is_known) and (len(tasks) == 1 or "" in tasks)


def _comes_from(other: Job, attempt: Attempt) -> bool:
    """Whether it was submitted on a node of the attempt."""
    host = other.submitted_from.partition(":")[0]
    return bool({host, host.partition(".")[0]} & set(attempt.nodes))


def _number(job: Job) -> int:
    """The number under which it was submitted: tasks of one array, and parts of one job, share it."""
    text = job.job_id.partition("_")[0].partition("+")[0]
    return int(text) if text.isdecimal() else 0


def _task(job: Job) -> str:
    """Of an array; "" of any other job, and of tasks that wait together."""
    return job.job_id.partition("_")[2]
