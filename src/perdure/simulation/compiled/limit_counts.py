"""Limits of QOS and associations, compiled: `perdure.scheduling.slurm.limits` defines them.

Jobs that the same limits hold for share a stretch of `entry`. The plain form counts in dictionaries, by the names of
holders and users; kernels have arrays alone, so each name has a place in `counts` here, looked up once before the first
event. Limits are numbers of running jobs and of the GPUs that they hold; what a limit bars waits, and is not refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.slurm.limits import LimitHolder
from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records


class LimitTable(NamedTuple):
    """The limits, and what counts for them.

    Jobs of one user, account, QOS and partition share a stretch: the table grows with those, not with the jobs. Each
    entry counts for a holder as a whole and for one user of it.
    """

    stretch: NDArray[np.int64]  # of each job; those of stretch i are rows first[i]:first[i + 1] of `entry`
    first: NDArray[np.int64]
    entry: Records  # limits, `NEVER` for none; and the places of `counts` that they are on
    counts: Records  # running jobs and their GPUs, of all users of a holder or of one


def limit_table(holders: Sequence[tuple[LimitHolder, ...]]) -> LimitTable:
    """Nobody runs. Where no job has a limit, it has no rows, and kernels are done at once.

    `holders` are those of each job, in the order in which they are asked. A limit that is not set is `NEVER`, which no
    count exceeds, so that kernels need not ask which are set.
    """
    stretches: dict[tuple[LimitHolder, ...], int] = {}
    stretch = [stretches.setdefault(each, len(stretches)) for each in holders] if any(holders) else []
    places: dict[Hashable, int] = {}
    rows = []
    for holder in (holder for each in stretches for holder in each):
        whole = places.setdefault(holder.key, len(places))
        own = places.setdefault((holder.key, holder.user), len(places))
        limits = holder.limits
        most = limits.grp_jobs, limits.grp_gpus, limits.max_jobs_per_user, limits.max_gpus_per_user
        rows.append((whole, own, *(int(NEVER) if each is None else each for each in most)))
    entry = records(len(rows), whole=LONG, own=LONG, grp_jobs=LONG, grp_gpus=LONG, user_jobs=LONG, user_gpus=LONG)
    for i, row in enumerate(rows):
        entry[i] = row
    first = np.cumsum([0, *(len(each) for each in stretches)]).astype(np.int64)
    return LimitTable(np.array(stretch, np.int64), first, entry, records(len(places), jobs=LONG, gpus=LONG))


@kernel
def limited(table, row, gpus):  # type: ignore[no-untyped-def]
    """Whether a job would exceed a limit by starting now. Reaching a limit is allowed.

    All users of a holder together count against its Grp limits, the job's own user against those for each user (such as
    MaxJobsPU). Which limit it was only the plain form tells.
    """
    if len(table.stretch) == 0:
        return False
    for i in range(table.first[table.stretch[row]], table.first[table.stretch[row] + 1]):
        entry = table.entry[i]
        whole, own = table.counts[entry.whole], table.counts[entry.own]
        if whole.jobs + 1 > entry.grp_jobs or whole.gpus + gpus > entry.grp_gpus:
            return True
        if own.jobs + 1 > entry.user_jobs or own.gpus + gpus > entry.user_gpus:
            return True
    return False


@kernel
def count_running(table, row, jobs, gpus):  # type: ignore[no-untyped-def]
    """Count a job that starts (`jobs` 1) or ends (-1) for its holders; `gpus` has the same sign.

    A job counts for every holder, also where a limit of a QOS stands in place of the holder's own.
    """
    if len(table.stretch) == 0:
        return
    for i in range(table.first[table.stretch[row]], table.first[table.stretch[row] + 1]):
        entry = table.entry[i]
        table.counts[entry.whole].jobs += jobs
        table.counts[entry.whole].gpus += gpus
        table.counts[entry.own].jobs += jobs
        table.counts[entry.own].gpus += gpus
