"""Jobs that submit their own successor: to put one back beside it would run two copies in one directory. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.model.jobs import Attempt, Job


def successor_of(job: Job, attempt: Attempt, known: Mapping[str, Job]) -> str:
    """What to say of the live job that goes on in the place of `job`, of which `attempt` is the latest; "" without one.

    It was submitted since the attempt started, by the same user under the same name in the same directory: on a node of
    the attempt, or with the same command (or by a script that submits jobs) from another session than the job itself,
    and it is the only one of its kind. Who submits twenty alike means twenty jobs.
    """
    if not job.work_dir:
        return ""
    alike = [other for other in known.values() if other.user == job.user and _is_alike(other, job)]
    for other in alike:
        if _is_younger(other, job, attempt):
            by_itself = _comes_from(other, attempt)
            if not by_itself and (len(alike) > 1 or not _may_be_its_own(other, job, attempt)):
                continue
            if by_itself or attempt.resubmits or other.submit_s <= (attempt.end_s or other.submit_s):
                return f"it has submitted its own successor, job {other.job_id}"
            return f"job {other.job_id}, submitted since under its name in its directory, takes its place"
    return ""


def _is_alike(other: Job, job: Job) -> bool:
    same = (other.name, other.work_dir) == (job.name, job.work_dir)
    return same and not other.state.is_over and _number(other) != _number(job)


def _is_younger(other: Job, job: Job, attempt: Attempt) -> bool:
    """What was put back was not submitted anew, whatever instant it bears."""
    return not other.restarts and other.submit_s >= attempt.start_s and _number(other) > _number(job)


def _may_be_its_own(other: Job, job: Job, attempt: Attempt) -> bool:
    same_command = other.command == job.command or attempt.resubmits
    return same_command and other.submitted_from != job.submitted_from


def _comes_from(other: Job, attempt: Attempt) -> bool:
    """Whether it was submitted on a node of the attempt."""
    host = other.submitted_from.partition(":")[0]
    return bool({host, host.partition(".")[0]} & set(attempt.nodes))


def _number(job: Job) -> int:
    """The number under which it was submitted: tasks of one array, and parts of one job, share it."""
    text = job.job_id.partition("_")[0].partition("+")[0]
    return int(text) if text.isdecimal() else 0
