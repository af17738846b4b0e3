"""The work of other jobs that goes before a job: what it adds up to among all, its partition, its account, and both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perdure.model.queue_looks import MEASURES, SCOPES, QueueLooks
from perdure.waits.grouping import codes

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WorkAhead:
    """Jobs as they are at instants, pending or running; columns of shape (n,)."""

    poll_s: Column
    priority: Column
    partition: NDArray[np.int64]
    account: NDArray[np.int64]
    cpus: Column
    mem_mib: Column
    gpus: Column
    hours: Column  # by the limit: all of it for a pending job, what is left of it for a running one

    @classmethod
    def of(cls, looks: QueueLooks) -> WorkAhead:
        """The pending jobs that were looked at."""
        return cls(
            looks.poll_s, looks.priority, looks.partition, looks.account, looks.cpus, looks.mem_mib, looks.gpus,
            looks.limit_s / 3600,
        )  # fmt: skip

    def amounts(self) -> dict[str, Column]:
        """Of each of `MEASURES` what each job adds."""
        each = {
            "jobs": np.ones(len(self.poll_s)), "cpus": self.cpus, "mem_mib": self.mem_mib,
            "cpu_h": self.cpus * self.hours, "gpus": self.gpus, "gpu_h": self.gpus * self.hours,
        }  # fmt: skip
        return {name: np.nan_to_num(values) for name, values in each.items()}


def work_ahead(asked: WorkAhead, others: WorkAhead, which: Literal["pending", "running"]) -> dict[str, Column]:
    """(n_asked,) each: the work of `others` of a higher priority in the same instant, by the names of `STATE`."""

    def both(name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(asked, name), getattr(others, name)])

    instant, priority, n = both("poll_s"), np.nan_to_num(both("priority").astype(np.float64)), len(asked.poll_s)
    among = {
        "": codes(instant),
        "_partition": codes(instant, both("partition")),
        "_account": codes(instant, both("account")),
        "_both": codes(instant, both("partition"), both("account")),
    }
    amounts = {name: np.r_[np.zeros(n), values] for name, values in others.amounts().items()}
    return {
        f"{which}_{measure}{scope}": sum_above(among[scope], priority, amounts[measure])[:n]
        for measure in MEASURES
        for scope in SCOPES
    }


def sum_above(group: NDArray[np.int64], priority: Column, values: Column) -> Column:
    """(n,) sum of the values of the rows of the same group with a higher priority; equal ones do not count.

    >>> sum_above(np.array([0, 0, 0, 1]), np.array([3.0, 2, 2, 1]), np.array([1.0, 2, 4, 8])).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    if not len(group):
        return np.zeros(0)
    order = np.lexsort((-priority, group))
    behind = np.r_[0.0, np.cumsum(values[order])]  # [i]: of all rows before the i-th
    fresh = np.r_[True, group[order][1:] != group[order][:-1]]
    lower = fresh | np.r_[True, priority[order][1:] != priority[order][:-1]]
    rows = np.arange(len(order))
    begin = np.maximum.accumulate(np.where(fresh, rows, 0))
    tied = np.maximum.accumulate(np.where(lower, rows, 0))
    above = np.empty(len(order))
    above[order] = behind[tied] - behind[begin]
    return above
