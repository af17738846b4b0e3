"""Last known checkpoints of running jobs, from the directories of their fences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from perdure.job.saved import saved_s
from perdure.service.workers.heartbeat_monitor import is_plain, writers_of
from perdure.waits.queue import QueuedJob


def checkpoints_of(fences: Sequence[Path], jobs: Iterable[QueuedJob], now: float) -> dict[str, float]:
    """When each job last published one, as far as that is known; a clock that is ahead counts as now."""
    found: dict[str, float] = {}
    for job in jobs:
        told = [saved_s(fence / job.job_id, writers_of(job.user)) for fence in fences if is_plain(job.job_id)]
        if known := [min(each, now) for each in told if each is not None]:
            found[job.job_id] = max(known)
    return found
