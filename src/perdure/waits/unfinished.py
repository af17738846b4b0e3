"""Jobs of a queue as rows next to a site's past: accounting lists a job when it is over, and long ones late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.waits.past import Past
from perdure.waits.queue import QueuedJob


def with_unfinished(past: Past, jobs: Sequence[QueuedJob], duration_s: NDArray[np.float64] | None = None) -> Past:
    """The past with jobs that wait or run, shape (n_jobs,), and how long each is taken to run; NaN is not known.

    Without them fewer and shorter jobs than really come are seen to come. Those that accounting lists already, or
    that came before all that it lists, are left out. What it says of running times stays as it is.
    """
    if not past.span_s or not jobs:
        return past
    told = np.isin(np.array([job.job_id for job in jobs], np.str_), past.jobs.job_id)
    rows = [row for row, job in enumerate(jobs) if not told[row] and past.since_s <= job.submit_s <= past.until_s]
    if not rows:
        return past
    known = [jobs[row] for row in rows]
    found = JobTable(
        job_id=np.array([job.job_id for job in known], np.str_),
        submit_s=np.array([job.submit_s for job in known]),
        gpus=np.array([job.gpus for job in known], np.int64),
        duration_s=np.full(len(known), np.nan) if duration_s is None else duration_s[rows],
        user=np.array([job.user for job in known], np.str_),
        start_s=np.array([job.start_s if job.is_running and job.start_s is not None else np.nan for job in known]),
        end_s=np.full(len(known), np.nan),
        walltime_s=np.array([job.walltime_s or np.nan for job in known]),
        nodes=np.array([job.nodes for job in known], np.int64),
        partition=np.array([job.partitions[0] if job.partitions else "" for job in known], np.str_),
        account=np.array([job.account for job in known], np.str_),
        qos=np.array([job.qos for job in known], np.str_),
        cpus=np.array([job.cpus for job in known], np.int64),
        eligible_s=np.array([np.nan if job.eligible_s is None else job.eligible_s for job in known]),
    )
    return replace(past, jobs=past.jobs.followed_by(found).by_submit())
