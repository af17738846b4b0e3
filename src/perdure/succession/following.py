"""A link by the looks at it: its state, and what its end means. Pure.

A mark is newer than any look at the resource manager, and is believed for what it says: that the program runs, or has
ended. Why it ended is the resource manager's to say wherever a signal came: a ``scancel`` by hand looks like a failure
from inside the job.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.job.link_marks import LinkMarks
from perdure.model.exits import RETRY_ME
from perdure.slurm_words.link_job import LinkJob
from perdure.succession.chain_state import JobChain, Link, LinkEnding, Phase
from perdure.succession.messages import LinksSeen

NEAR_S = 120.0  # before its walltime: who ends then after a signal has ended for it
NEAR_SHARE = 0.25  # of a short walltime
SKEW_S = 5.0  # of the clocks of nodes and of the controller


def job_of(chain: JobChain, link: Link, seen: LinksSeen) -> LinkJob | None:
    """The job of a link: by its key, or by its id where somebody has taken the key away."""
    own = [job for job in seen.jobs or () if job.chain == chain.spec.tag and job.key == link.key]
    if own:
        return max(own, key=lambda job: int(job.job_id))
    return next((job for job in seen.jobs or () if link.job_id and job.job_id == link.job_id and not job.key), None)


def runs_again(link: Link, job: LinkJob) -> bool:
    """Whether the job of a link that had ended was put back and has started since, between two looks."""
    is_later = job.start_s > link.started_s + SKEW_S and job.start_s > link.ended_s - SKEW_S
    return job.state == "RUNNING" and link.started_s > 0 and is_later


def followed(chain: JobChain, link: Link, seen: LinksSeen) -> Link:
    """The link, with all that a look shows of it."""
    marks = _own_marks(link, seen.marks.get(link.number, LinkMarks()))
    job = job_of(chain, link, seen)
    link = replace(link, marks=marks)
    if link.phase is Phase.ENDED:  # what its end means is still open
        return replace(link, state=job.state) if job is not None and job.is_over else link
    if not link.job_id:
        found = job.job_id if job is not None else marks.begun.job_id if marks.begun is not None else ""
        if not found:
            return link
        submitted_s = job.submit_s if job is not None else link.intended_s
        link = replace(link, job_id=found, phase=Phase.WAITING, submitted_s=submitted_s or link.intended_s)
    if job is not None:
        link = _by_job(link, job, seen)
    elif seen.jobs is not None and seen.looked_s > link.submitted_s + SKEW_S:
        link = replace(link, missed_s=link.missed_s or seen.looked_s)
    return _by_marks(link)


def _own_marks(link: Link, marks: LinkMarks) -> LinkMarks:
    """Those of this submission: one that was lost may have left some."""
    if link.job_id and marks.begun is not None and marks.begun.job_id != link.job_id:
        return LinkMarks()
    asked = marks.asked
    if asked is not None and marks.begun is not None and asked.at_s < marks.begun.came_s:
        return replace(marks, asked=None)
    return marks


def _by_job(link: Link, job: LinkJob, seen: LinksSeen) -> Link:
    link = replace(link, state=job.state, reason=job.reason, missed_s=0.0, submitted_s=job.submit_s or link.submitted_s)
    if job.is_over:
        started_s, ended_s = link.started_s or _ran_at(link, job), job.end_s or seen.looked_s
        return replace(link, phase=Phase.ENDED, started_s=started_s, ended_s=ended_s)
    if job.waits:
        begun = link.marks.begun
        if begun is not None and begun.came_s > seen.looked_s - SKEW_S:
            return link  # it has started since
        return replace(link, phase=Phase.WAITING, started_s=0.0, ends_s=0.0, planned_s=job.start_s, marks=LinkMarks())
    ended = link.marks.ended
    if ended is not None and job.start_s > ended.at_s + SKEW_S:  # it was put back, and has started again
        link = replace(link, marks=LinkMarks())
    return replace(link, phase=Phase.RUNNING, started_s=job.start_s, ends_s=job.end_s)


def _ran_at(link: Link, job: LinkJob) -> float:
    """When a job that is over began; 0 where it was cancelled while it waited."""
    if link.marks.begun is not None:
        return link.marks.begun.came_s
    return job.start_s if job.start_s and job.end_s > job.start_s else 0.0


def _by_marks(link: Link) -> Link:
    begun, ended = link.marks.begun, link.marks.ended
    if begun is None or (link.phase is Phase.ENDED and ended is None):
        return link
    if ended is not None:
        return replace(
            link, phase=Phase.ENDED, started_s=link.started_s or begun.came_s, ended_s=ended.at_s, missed_s=0.0
        )
    return replace(link, phase=Phase.RUNNING, started_s=link.started_s or begun.came_s, missed_s=0.0)


def ending_of(link: Link, walltime_s: float, told: LinkJob | None = None) -> tuple[LinkEnding, str]:
    """What the end of a link means, and in words; `UNKNOWN` where the resource manager has to be asked.

    `told` is its answer.
    """
    ended, state = link.marks.ended, link.state
    if ended is not None and ended.skipped:
        return LinkEnding.DROPPED, ended.skipped
    if link.is_cancelled:
        return LinkEnding.DROPPED, "it was not needed any more"
    if link.marks.was_fenced:
        return LinkEnding.DROPPED, "a newer link has taken over"
    if link.marks.is_done:
        return LinkEnding.DONE, "its program ended with exit code 0"
    if state in ("TIMEOUT", "DEADLINE"):
        return LinkEnding.HANDED_OVER, "its walltime was over"
    asked = link.marks.asked
    if asked is not None and (link.marks.begun is not None or 0 < link.started_s <= asked.at_s):
        at_end = link.ended_s >= (link.ends_s or link.started_s + walltime_s) - SKEW_S
        return LinkEnding.HANDED_OVER, "its walltime was over" if at_end else "its successor took over"
    if state == "CANCELLED":
        return LinkEnding.CANCELLED, "it was cancelled by hand"
    if state in ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED"):
        return LinkEnding.LOST, {"NODE_FAIL": "its node failed", "BOOT_FAIL": "its node did not start"}.get(
            state, "it was preempted"
        )
    if state not in ("COMPLETED", "FAILED", "OUT_OF_MEMORY"):
        return LinkEnding.UNKNOWN, ""
    ends_s = link.ends_s or link.started_s + walltime_s
    is_near = link.started_s > 0 and link.ended_s >= ends_s - min(NEAR_S, NEAR_SHARE * walltime_s)
    if is_near and (ended is None or ended.signals):
        return LinkEnding.HANDED_OVER, "it ended just before its walltime"
    if state == "COMPLETED":
        signals = "" if ended is None else ", ".join(ended.signals)
        return (
            (LinkEnding.HANDED_OVER, f"it ended well after {signals}") if signals else (LinkEnding.DONE, "it completed")
        )
    return _failure(link, told)


def _failure(link: Link, told: LinkJob | None) -> tuple[LinkEnding, str]:
    if link.state == "OUT_OF_MEMORY":
        return LinkEnding.FAILED, "it ran out of memory"
    if link.marks.ended is not None:
        return LinkEnding.FAILED, f"it failed with exit code {link.marks.ended.exit_code}"
    if told is None:
        return LinkEnding.UNKNOWN, ""
    if told.exit_code == RETRY_ME:  # so ends one whose last mark cannot be written (`perdure.job.link`)
        return LinkEnding.HANDED_OVER, "it ended after a signal, and asks for another link"
    if not told.exit_code and (reason := told.reason or link.reason):  # such as JobLaunchFailure
        return LinkEnding.FAILED, f"it failed before its program began: Slurm says {reason}"
    return LinkEnding.FAILED, f"it failed with exit code {told.exit_code}"
