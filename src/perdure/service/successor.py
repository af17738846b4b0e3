"""Jobs that submit their own successor: to put one back beside it would run two copies in one directory. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.model.jobs import Attempt, Job


def successor_of(job: Job, attempt: Attempt, known: Mapping[str, Job]) -> str:
    """What to say of the live job that goes on in the place of `job`, of which `attempt` is the latest; "" without one.

    It was submitted since the attempt started, by the same user under the same name in the same directory, and from
    another session than the job itself: who submits twenty alike from one shell means twenty jobs. The command must be
    the same as well, unless it was submitted on a node of the attempt or the batch script submits jobs.
    """
    for other in known.values():
        if other.user == job.user and other.name == job.name and _succeeds(other, job, attempt):
            by_itself = attempt.resubmits or other.submit_s <= (attempt.end_s or other.submit_s)
            if by_itself or _comes_from(other, attempt):
                return f"it has submitted its own successor, job {other.job_id}"
            return f"job {other.job_id}, submitted since under its name in its directory, takes its place"
    return ""


def _succeeds(other: Job, job: Job, attempt: Attempt) -> bool:
    if other.state.is_over or other.restarts or other.submit_s < attempt.start_s or not job.work_dir:
        return False  # what was put back was not submitted anew, whatever instant it bears
    if other.work_dir != job.work_dir or _number(other) <= _number(job):
        return False
    other_session = other.submitted_from != job.submitted_from
    same_command = other.command == job.command or attempt.resubmits
    return _comes_from(other, attempt) or (other_session and same_command)


def _comes_from(other: Job, attempt: Attempt) -> bool:
    """Whether it was submitted on a node of the attempt."""
    host = other.submitted_from.partition(":")[0]
    return bool({host, host.partition(".")[0]} & set(attempt.nodes))


def _number(job: Job) -> int:
    """The number under which it was submitted: tasks of one array, and parts of one job, share it."""
    text = job.job_id.partition("_")[0].partition("+")[0]
    return int(text) if text.isdecimal() else 0
