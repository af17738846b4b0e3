"""What a look at a queue shows of each waiting job, before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCOPES = ("", "_partition", "_account", "_both")  # among all jobs; of the same partition, account, both
MEASURES = ("jobs", "cpus", "mem_mib", "cpu_h", "gpus", "gpu_h")  # hours are by the limits
STATE = tuple(
    f"{which}_{measure}{scope}" for which in ("pending", "running") for measure in MEASURES for scope in SCOPES
)
"""Pending and running jobs of a higher priority than this one, by name of the column."""
FAIR = ("share_raw", "share_norm", "usage_raw", "usage_effective", "level_fs", "usage_norm")
"""What Slurm's sshare says of the account."""


@dataclass(frozen=True, slots=True)
class QueueLooks:
    """Looks at waiting jobs, columns of shape (n,). Times are seconds of a local clock that showed 0:00 of `day_zero`.

    A number that is not known is NaN; the codes of partitions and accounts are any whole numbers.
    """

    job: NDArray[Any]
    poll_s: NDArray[np.float64]  # when the job was looked at
    submit_s: NDArray[np.float64]
    start_s: NDArray[np.float64]  # NaN where it is not known to have started
    seen_until_s: NDArray[np.float64]  # up to when it is known to have waited
    partition: NDArray[np.int64]
    account: NDArray[np.int64]
    nodes: NDArray[np.float64]
    cpus: NDArray[np.float64]
    gpus: NDArray[np.float64]
    mem_mib: NDArray[np.float64]
    limit_s: NDArray[np.float64]
    priority: NDArray[np.float64]  # at the look: Slurm rewrites it when a job starts
    day_zero: date
    state: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)  # some of `STATE` and `FAIR`, (n,) each

    def __post_init__(self) -> None:
        columns = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("day_zero", "state")
        }
        rows = {name: len(column) for name, column in {**columns, **self.state}.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"QueueLooks columns differ in length: {rows}")
        if unknown := set(self.state) - {*STATE, *FAIR}:
            raise ValueError(f"QueueLooks has no state {sorted(unknown)}")

    def __len__(self) -> int:
        return len(self.poll_s)
