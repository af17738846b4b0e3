"""Looks at a queue of the past, made of what accounting tells of its jobs: when each was submitted, started and ended.

Nobody looked then, so the looks are made up, at even intervals. At each one are all jobs that waited, and those that
were submitted since the look before, as if they had come at that very instant: else short waits would be seen too
seldom. Priorities are not known of the past (accounting rewrites them at the start), and are left open.
"""

from __future__ import annotations

from datetime import date

import numpy as np
from numpy.typing import NDArray

from perdure.model.queue_looks import MEASURES, SCOPES, QueueLooks
from perdure.model.table import JobTable

DAY_S = 86_400.0
MOST_ROWS = 60_000  # looks at jobs, the latest; learning from more takes longer than it is worth

Column = NDArray[np.float64]
Codes = NDArray[np.int64]


def looks_of(jobs: JobTable, until_s: float, every_s: float = 1800.0) -> QueueLooks:
    """The looks up to `until_s`, on the table's clock; row by row one job at one instant.

    A job counts as waiting from when it was eligible, where that is told, else from its submit.
    """
    came = np.where(np.isfinite(jobs.eligible_s), jobs.eligible_s, jobs.submit_s)
    start = np.where(np.isfinite(jobs.start_s), jobs.start_s, np.inf)
    polls = np.arange(until_s, came.min(initial=until_s) - every_s, -every_s)[::-1]
    row, poll, shift = _seen(came, start, polls, every_s)
    row, poll, shift = row[-MOST_ROWS:], poll[-MOST_ROWS:], shift[-MOST_ROWS:]
    started = np.where(start[row] <= until_s, start[row] + shift, np.nan)
    partition, account = _codes(jobs.partition), _codes(jobs.account)
    return QueueLooks(
        job=jobs.job_id[row],
        poll_s=poll,
        submit_s=jobs.submit_s[row] + shift,
        start_s=started,
        seen_until_s=np.full(len(row), until_s),
        partition=partition[row],
        account=account[row],
        nodes=_known(jobs.nodes)[row],
        cpus=_known(jobs.cpus)[row],
        gpus=jobs.gpus[row].astype(np.float64),
        mem_mib=np.full(len(row), np.nan),
        limit_s=jobs.walltime_s[row],
        priority=np.full(len(row), np.nan),
        day_zero=date.fromtimestamp(jobs.began_s),
        state=state_at(jobs, came, start, row, poll, partition, account),
    )


def _seen(came: Column, start: Column, polls: Column, every_s: float) -> tuple[NDArray[np.intp], Column, Column]:
    """Rows of jobs, the instant of each look, and by how much its times are moved so that it comes right then."""
    rows, times, shifts = [], [], []
    for poll in polls:
        waits = np.flatnonzero((came <= poll - every_s) & (start > poll))
        fresh = np.flatnonzero((came > poll - every_s) & (came <= poll))
        rows += [waits, fresh]
        times += [np.full(len(waits) + len(fresh), poll)]
        shifts += [np.zeros(len(waits)), poll - came[fresh]]
    if not rows:
        return np.empty(0, np.intp), np.empty(0), np.empty(0)
    return np.concatenate(rows), np.concatenate(times), np.concatenate(shifts)


def state_at(
    jobs: JobTable, came: Column, start: Column, row: NDArray[np.intp], poll: Column, partition: Codes, account: Codes
) -> dict[str, Column]:
    """What waited and what ran at each look, added up among all jobs and those of like partition and account.

    Jobs that came before this one are taken for those ahead of it.
    """
    hours = np.nan_to_num(jobs.walltime_s) / 3600
    cpus, gpus = np.nan_to_num(_known(jobs.cpus)), jobs.gpus.astype(np.float64)
    ones = np.ones(len(jobs))
    each = {"jobs": ones, "cpus": cpus, "cpu_h": cpus * hours, "gpus": gpus, "gpu_h": gpus * hours}
    end = np.where(np.isfinite(jobs.end_s), jobs.end_s, np.inf)
    groups = dict(
        zip(
            SCOPES, (0 * partition, partition, account, partition * (account.max(initial=0) + 1) + account), strict=True
        )
    )
    found = {}
    for scope, group in groups.items():
        counts = {name: _Counts(group, when) for name, when in (("came", came), ("start", start), ("end", end))}
        for measure in MEASURES:
            if measure not in each:
                continue
            by = {name: count.up_to(each[measure], group[row], poll) for name, count in counts.items()}
            found[f"pending_{measure}{scope}"] = by["came"] - by["start"]
            found[f"running_{measure}{scope}"] = by["start"] - by["end"]
    return found


class _Counts:
    """Sums over the jobs of a group whose time is not after an instant."""

    def __init__(self, group: Codes, when: Column) -> None:
        self.order = np.lexsort((when, group))
        self.group, self.when = group[self.order], when[self.order]
        self.first = np.searchsorted(self.group, np.arange(self.group.max(initial=-1) + 2))

    def up_to(self, values: Column, group: Codes, poll: Column) -> Column:
        """(n_looks,) the sum of `values` for each look's group, up to and with its instant."""
        total: Column = np.r_[0.0, np.cumsum(values[self.order])]
        place = np.empty(len(poll), np.int64)
        for code in np.unique(group):
            first, last = self.first[code], self.first[code + 1]
            asked = group == code
            place[asked] = first + np.searchsorted(self.when[first:last], poll[asked], "right")
        sums: Column = total[place] - total[self.first[group]]
        return sums


def _codes(words: NDArray[np.str_]) -> Codes:
    return np.unique(words, return_inverse=True)[1].astype(np.int64)


def _known(counts: NDArray[np.int64]) -> Column:
    return np.where(counts > 0, counts, np.nan)
