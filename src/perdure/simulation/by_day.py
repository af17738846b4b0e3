"""What the jobs of each day got under one schedule: what a comparison of schedules is resampled from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.simulation.groups import Grouping, GroupKind
from perdure.simulation.metrics import slowdown
from perdure.simulation.result import Result
from perdure.simulation.use import DAY_S

MEASURES = ("jct_s", "log_jct", "wait_s", "slowdown")
"""Natural logarithms are of JCTs in seconds, of at least one: they say what became of the typical job, where means say
what became of the longest."""
LEAST_JOBS = 20  # of a group that is looked at by itself
_MOST_GROUPS = 200  # of one kind, those with most jobs

Floats = NDArray[np.float64]
Group = tuple[GroupKind | None, str]  # what its jobs have in common, and the name of that; None: all jobs


@dataclass(frozen=True, slots=True)
class DayTotals:
    """Jobs, and totals of what they got, by the day of their submit in UTC.

    Two schedules of one table have the same groups, days and jobs.
    """

    groups: tuple[Group, ...]  # all jobs first
    first_day: int  # since the epoch, or since the trace began where that is not known
    jobs: NDArray[np.int64]  # shape (n_groups, n_days)
    totals: Floats  # shape (n_measures, n_groups, n_days), in the order of `MEASURES`


def day_totals(table: JobTable, result: Result, parted: Sequence[Grouping]) -> DayTotals:
    """The totals of all jobs, and of each group that has jobs enough."""
    day = ((table.began_s + table.submit_s) // DAY_S).astype(np.int64)
    first, last = (int(day.min()), int(day.max())) if len(day) else (0, 0)
    day, days = day - first, last - first + 1
    jct_s = result.end_s - table.submit_s
    got = np.array([jct_s, np.log(np.maximum(jct_s, 1.0)), result.start_s - table.submit_s, slowdown(table, result)])
    everybody = Grouping(GroupKind.GPUS, ("",), np.zeros(len(table), np.intp))
    groups: list[Group] = [(None, "")]
    jobs, totals = [_sums(everybody, day, days)], [_sums(everybody, day, days, each) for each in got]
    parts = [np.array(totals)]
    for grouping in (each for each in parted if len(each.names) > 1):  # one group is all jobs over again
        sizes = np.bincount(grouping.of, minlength=len(grouping.names))
        largest = np.argsort(-sizes, kind="stable")[:_MOST_GROUPS]
        shown = np.sort(largest[sizes[largest] >= LEAST_JOBS])
        groups += [(grouping.kind, grouping.names[place]) for place in shown]
        jobs.append(_sums(grouping, day, days)[shown])
        parts.append(np.array([_sums(grouping, day, days, each)[shown] for each in got]))
    return DayTotals(tuple(groups), first, np.concatenate(jobs).astype(np.int64), np.concatenate(parts, axis=1))


def _sums(grouping: Grouping, day: NDArray[np.int64], days: int, values: Floats | None = None) -> Floats:
    """Of each group and day the sum of its jobs' values, or their number; shape (n_groups, n_days)."""
    cells = len(grouping.names) * days
    sums: Floats = np.bincount(grouping.of * days + day, values, cells).reshape(-1, days).astype(np.float64)
    return sums
