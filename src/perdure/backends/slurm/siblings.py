"""Jobs of one user that run beside each other in one directory: what two of them may write to is neither's.

Slurm tells whose a job's own two files are. Of further files only the scripts tell, and those of a sweep say the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from perdure.backends.reader import Search
from perdure.backends.slurm.outputs import JobOutputs
from perdure.backends.slurm.records import JobRecord
from perdure.backends.slurm.writers import LATE_S, Span
from perdure.model.jobs import Attempt

MAX_SIBLINGS = 50  # of a job, the latest


def siblings(job: JobRecord, records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    """Other jobs of its user that were started in the same directory and have run, the latest last."""
    place = (job.uid, job.work_dir)
    beside = [other for other in records if (other.uid, other.work_dir) == place and other.start_s and other.nodes]
    others = [other for other in beside if whole_id(other) != whole_id(job)]
    return tuple(sorted(others, key=lambda record: record.start_s or 0)[-MAX_SIBLINGS:])


def rivals(
    path: str, attempt: Attempt, beside: Iterable[JobRecord], known: Mapping[str, JobOutputs]
) -> tuple[Span, ...]:
    """Those of the jobs beside an attempt that ran at the same time and may have written to `path`.

    `known` holds where their scripts say that they write to; who is not in it may write anywhere.
    """
    end_s = (math.inf if attempt.end_s is None else attempt.end_s) + LATE_S
    found = []
    for job in beside:
        ended_s = math.inf if job.end_s is None else float(job.end_s)
        if job.start_s is None or job.start_s > end_s or ended_s < attempt.start_s:
            continue
        outputs = known.get(job.job_id)
        if outputs is None or may_write(outputs, path):
            found.append(Span(job.job_id, float(job.start_s), ended_s))
    return tuple(found)


def may_write(outputs: JobOutputs, path: str) -> bool:
    """Whether a job's script names the path, or files of such names."""
    return path in outputs.ranks or any(_finds(search, path) for search in outputs.searches)


def _finds(search: Search, path: str) -> bool:
    root = search.root.rstrip("/") + "/"
    if not path.startswith(root):
        return False
    names = path.removeprefix(root).split("/")
    above = len(names) - len(search.parts)
    return 0 <= above <= search.depth and all(
        re.fullmatch(part, name) for part, name in zip(search.parts, names[above:], strict=True)
    )


def whole_id(record: JobRecord) -> str:
    """Components of a heterogeneous job are one job."""
    return record.job_id.partition("+")[0]
