"""Which jobs accounting is asked about: those with an attempt whose end the controller's records do not say.

A record shows a job's latest attempt only. Whatever was put back, or has left the controller's memory, since the
last look is known to accounting alone, which may learn of it some seconds later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from perdure.backends.slurm.records import JobRecord
from perdure.slurm_words.reasons import LAUNCH_FAILED
from perdure.slurm_words.states import ENDS, RARE_ENDS, is_waiting

ASK_AGAIN_S = 30.0  # for this long, as slurmdbd may lag


@dataclass(frozen=True, slots=True)
class Gap:
    """What accounting is asked about one job: the end of the attempt that began at `start_s` (None: of any)."""

    start_s: int | None
    until_s: float


def gaps_between(
    gaps: Mapping[str, Gap],
    before: Mapping[str, JobRecord],
    now: Mapping[str, JobRecord],
    time_s: float,
    ends: Mapping[str, int] | None = None,
    asked_of: Collection[str] = (),
) -> dict[str, Gap]:
    """The gaps that are not answered yet, and those that come up between two looks; by job id.

    `ends`: of how many attempts of a job the end is known. `asked_of`: jobs whose epilogs wait for a look at them.
    """
    kept = {job_id: gap for job_id, gap in gaps.items() if gap.until_s > time_s}
    until_s = time_s + ASK_AGAIN_S
    for job_id, record in now.items():
        was = before.get(job_id)
        if was is None and 0 < record.restarts <= (ends or {}).get(job_id, 0):
            continue
        if was is not record and _was_put_back(was, record):
            ran = was is not None and not is_waiting(was.state) and record.restarts <= was.restarts + 1
            kept[job_id] = Gap(was.start_s if was is not None and ran else None, until_s)
        elif record.state == "COMPLETING" and job_id not in asked_of:
            kept[job_id] = Gap(record.start_s, time_s + 1.0)
    taken_over = {str(record.raw_id) for record in now.values()}  # an array's own record becomes that of its last task
    for job_id in sorted(before.keys() - now.keys() - taken_over):
        was = before[job_id]
        if not _is_over(was):
            kept[job_id] = Gap(None if is_waiting(was.state) else was.start_s, until_s)
    return kept


def open_gaps(gaps: Mapping[str, Gap], ends: Iterable[tuple[str, int]]) -> dict[str, Gap]:
    """Without the gaps that are answered by `ends` that became known: job ids with instants of start."""
    known: Collection[tuple[str, int]] = set(ends)
    return {job_id: gap for job_id, gap in gaps.items() if gap.start_s is None or (job_id, gap.start_s) not in known}


def _was_put_back(was: JobRecord | None, record: JobRecord) -> bool:
    """Whether there may be an attempt since `was` of which neither record tells how it ended."""
    if was is None:
        return record.restarts > 0 or record.reason.startswith(LAUNCH_FAILED)
    if record.reason.startswith(LAUNCH_FAILED) and not was.reason.startswith(LAUNCH_FAILED):
        return True
    if _is_over(was):  # how that attempt ended was told
        return record.restarts > was.restarts + 1
    again = (record.submit_s, record.restarts) != (was.submit_s, was.restarts)
    return again or (not is_waiting(was.state) and not is_waiting(record.state) and record.start_s != was.start_s)


def _is_over(record: JobRecord) -> bool:
    return record.state in _OVER


_OVER = ENDS | RARE_ENDS
