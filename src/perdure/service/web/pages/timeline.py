"""A job's attempts on one axis of time: where each waited, ran and ended, as parts of a thousand. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.model.jobs import Attempt, Job

WIDTH = 1000.0
THINNEST = 4.0


@dataclass(frozen=True, slots=True)
class Stripe:
    """One attempt's row: a wait, then a run."""

    number: int  # 1 for the first attempt shown
    attempt: Attempt
    wait_x: float
    wait_width: float
    wait_s: float
    x: float
    width: float
    ran_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    start_s: float
    end_s: float
    stripes: tuple[Stripe, ...]


def timeline(job: Job, attempts: Sequence[Attempt], now: float) -> Timeline:
    """Lay out `attempts`, oldest first; what still runs reaches to `now`."""
    if not attempts:
        return Timeline(job.submit_s, max(now, job.submit_s), ())
    ends = [max(a.start_s, now if a.end_s is None else a.end_s) for a in attempts]
    start = min(job.submit_s, attempts[0].start_s)
    end = max(*ends, start + 1.0)
    scale = WIDTH / (end - start)
    stripes = []
    free_s = job.submit_s
    for number, (attempt, end_s) in enumerate(zip(attempts, ends, strict=True), 1):
        waited = max(0.0, attempt.start_s - free_s)
        x = min((attempt.start_s - start) * scale, WIDTH - THINNEST)
        width = min(max((end_s - attempt.start_s) * scale, THINNEST), WIDTH - x)
        wait_x = max(0.0, x - waited * scale)
        stripes.append(Stripe(number, attempt, wait_x, x - wait_x, waited, x, width, end_s - attempt.start_s))
        free_s = end_s
    return Timeline(start, end, tuple(stripes))
