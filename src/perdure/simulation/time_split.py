"""A trace parted in time: a policy learns from what had ended by an instant, and is judged by the jobs after it."""

from __future__ import annotations

import numpy as np

from perdure.errors import InputError
from perdure.model.table import JobTable


def split_by_time(table: JobTable, share: float, option: str) -> tuple[JobTable, tuple[float, ...]]:
    """The jobs submitted after the first `share` of the time between the first submit and the last; and the services
    in GPU-seconds of those that had ended by then, as recorded, or had they not waited.

    Raises `InputError`, naming the option, for a share that is not between 0 and 1, and where either part has no job.

    >>> table = JobTable(np.array(["a", "b", "c"]), np.array([0, 4, 10.0]), np.array([2, 1, 1]), np.array([3, 9, 5.0]))
    >>> later, services = split_by_time(table, 0.5, "--share")
    >>> later.job_id.tolist(), services
    (['c'], (6.0,))
    """
    if not 0 < share < 1:
        raise InputError(option, f"{share:g} is not a share between 0 and 1", "Write a number such as 0.3")
    first_s, last_s = (float(table.submit_s[place]) for place in (0, -1))
    cut_s = first_s + share * (last_s - first_s)
    end_s = np.where(np.isfinite(table.end_s), table.end_s, table.submit_s + table.duration_s)
    known, later = end_s <= cut_s, table.submit_s > cut_s
    if not known.any() or not later.any():
        which = "has ended in that part of the trace" if not known.any() else "came later"
        raise InputError(option, f"no job {which}", "Write another share")
    return table.take(np.flatnonzero(later)), tuple((table.gpus * table.duration_s)[known].tolist())
