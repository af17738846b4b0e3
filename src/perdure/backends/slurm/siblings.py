"""Jobs of one user that run alongside each other in one directory: what two of them may write to is neither's.

Slurm tells whose a job's own two files are. Of further files only the scripts tell, and those of a sweep say the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from perdure.backends.ownership import Span
from perdure.backends.rank_files import RankFiles
from perdure.backends.slurm.outputs import JobOutputs
from perdure.backends.slurm.records import JobRecord

MAX_SIBLINGS = 50  # of a job, the latest


def siblings(job: JobRecord, records: Iterable[JobRecord]) -> tuple[JobRecord, ...]:
    """Other jobs of its user that were started in the same directory and have run, the latest last."""
    place = (job.uid, job.work_dir)
    beside = [other for other in records if (other.uid, other.work_dir) == place and other.start_s and other.nodes]
    others = [other for other in beside if whole_id(other) != whole_id(job)]
    return tuple(sorted(others, key=lambda record: record.start_s or 0)[-MAX_SIBLINGS:])


def writing(beside: Iterable[JobRecord], known: Mapping[str, JobOutputs]) -> Iterator[tuple[Span, RankFiles | None]]:
    """When each of these jobs ran, and where its script says that it writes to: None where that is not `known`."""
    for job in beside:
        if job.start_s is not None:
            end_s = math.inf if job.end_s is None else float(job.end_s)
            outputs = known.get(job.job_id)
            yield Span(job.job_id, float(job.start_s), end_s), outputs.files if outputs else None


def whole_id(record: JobRecord) -> str:
    """Components of a heterogeneous job are one job."""
    return record.job_id.partition("+")[0]
