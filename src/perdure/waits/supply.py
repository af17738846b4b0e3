"""What a look's aggregates say of the partition: its processors, and the work before the job, in hours of all of them.

How many processors a partition has is not in looks: the most that were ever seen running there stand for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.waits.grouping import grouped
from perdure.waits.table import WaitTable

Column = NDArray[np.float64]
LONGEST_H = 720.0  # a mean limit beyond is a slip of the source


@dataclass(frozen=True, slots=True)
class Supply:
    """Processors by partition; `otherwise` where it was never seen."""

    partitions: NDArray[np.int64]
    cpus: Column
    otherwise: float

    @classmethod
    def of(cls, known: WaitTable) -> Supply:
        seen = np.maximum(_told(known, "running_cpus_partition"), _told(known, "cpus"))
        its = grouped(known.partition)
        most = np.zeros(len(its.keys))
        np.maximum.at(most, its.member, seen)
        return cls(its.keys, np.maximum(most, 1.0), float(max(1.0, np.median(most)) if len(most) else 1.0))

    def before(self, asked: WaitTable) -> Demand:
        """What is before each look."""
        place = np.minimum(np.searchsorted(self.partitions, asked.partition), max(0, len(self.partitions) - 1))
        there = self.partitions[place] == asked.partition if len(self.partitions) else np.zeros(len(asked), bool)
        cpus = np.where(there, self.cpus[place] if len(self.cpus) else 1.0, self.otherwise)
        wanted, running = np.maximum(_told(asked, "cpus"), 1.0), _told(asked, "running_cpus_partition")
        cpus = np.maximum(cpus, np.maximum(wanted, running))
        pending = {name: _told(asked, f"pending_{name}_partition") for name in ("jobs", "cpus", "cpu_h")}
        return Demand(
            cpus=cpus,
            wanted=wanted / cpus,
            running=running / cpus,
            left_h=np.minimum(_told(asked, "running_cpu_h_partition") / np.maximum(running, 1.0), LONGEST_H),
            ahead_jobs=pending["jobs"],
            ahead=pending["cpus"] / cpus,
            ahead_h=pending["cpu_h"] / cpus,
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """Of each look, (n,): shares of the partition's processors, and hours by the limits."""

    cpus: Column  # of the partition
    wanted: Column  # by the job
    running: Column  # that are in use
    left_h: Column  # until those who use them reach their limits, in the mean
    ahead_jobs: Column  # that wait before it
    ahead: Column  # that these ask for; may be more than all
    ahead_h: Column  # for how long all processors would work on that

    def until_free_h(self) -> Column:
        """(n,) hours until as many are free as the job asks for, if those that run end evenly up to their limits."""
        short = np.maximum(0.0, self.wanted - (1.0 - self.running))
        return np.asarray(2 * self.left_h * short / np.maximum(self.running, 1e-9), np.float64)


def _told(table: WaitTable, name: str) -> Column:
    """(n,) a feature; 0 where it is not known."""
    return np.maximum(np.nan_to_num(table.feature(name).astype(np.float64)), 0.0)
