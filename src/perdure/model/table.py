"""Many jobs as columns: what a trace holds and a simulation replays."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TableEnding(IntEnum):
    """How a job of a trace ended, in the words that Philly uses."""

    UNKNOWN = 0
    PASSED = 1
    KILLED = 2  # by its owner, or by a limit
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Attempts:
    """Recorded attempts of all jobs, one after another: those of job i are rows ``first[i]:first[i + 1]``.

    A job without recorded attempts has none here; its `JobTable.duration_s` is then one attempt that passes.
    """

    first: NDArray[np.int64]  # shape (n_jobs + 1,)
    duration_s: NDArray[np.float64]  # shape (n_attempts,)
    passed: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len(self.duration_s) != len(self.passed) or (len(self.first) and self.first[-1] != len(self.passed)):
            raise ValueError("Attempts: `first` must end at the number of attempts, and columns have one length")


_SELDOM_TOLD: dict[str, Any] = {  # columns of which a blank takes no memory
    "partition": "", "account": "", "qos": "", "dependency": "", "array": "", "nice": np.int64(0), "cpus": np.int64(0),
    "mem_mib": np.int64(0), "eligible_s": np.nan, "preempted": np.int64(0),
}  # fmt: skip
_BLANKS: dict[str, Any] = {
    "user": "", "vc": "", "gpu_type": "", "ending": np.int8(0), "nodes": np.int64(0), "start_s": np.nan,
    "end_s": np.nan, "walltime_s": np.nan, **_SELDOM_TOLD,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobTable:
    """Jobs as columns of one length, shape (n_jobs,); row i of every column is job i. Sorted by submit.

    Times are seconds since the trace began; NaN where a trace does not say. GPUs are those of the whole gang.
    """

    job_id: NDArray[np.str_]
    submit_s: NDArray[np.float64]
    gpus: NDArray[np.int64]
    duration_s: NDArray[np.float64]  # seconds that it ran, or must run, in all
    user: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))
    vc: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))  # virtual cluster, account or partition
    ending: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))  # Ending
    start_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # as recorded
    end_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    walltime_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # the limit asked for
    nodes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # asked for; 0 is not known
    gpu_type: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))  # asked for; "" is any
    partition: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))
    account: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))
    qos: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))
    nice: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # above 0: later
    cpus: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # asked for; 0 is not known
    mem_mib: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # likewise, in all
    eligible_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))  # from when on it may start
    dependency: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))  # as for sbatch: "afterok:ID:ID"
    array: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, "U1"))  # "12%2": two of its tasks at once
    preempted: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # times, as recorded
    attempts: Attempts | None = None
    began_s: float = 0.0  # seconds since the epoch at which the trace began; 0 where unknown

    def __post_init__(self) -> None:
        """Fill columns that were left out, and hold all to one length. Raises `ValueError`."""
        n = len(self.job_id)
        for name, value in _BLANKS.items():
            if n and not len(getattr(self, name)):
                blank = np.broadcast_to(value, n) if name in _SELDOM_TOLD else np.full(n, value)
                object.__setattr__(self, name, blank)
        rows = {f.name: len(getattr(self, f.name)) for f in fields(self) if f.name not in ("attempts", "began_s")}
        if len(set(rows.values())) > 1:
            raise ValueError(f"JobTable columns differ in length: {rows}")
        if self.attempts is not None and len(self.attempts.first) != n + 1:
            raise ValueError(f"JobTable has {n} jobs, its attempts are of {len(self.attempts.first) - 1}")

    def __len__(self) -> int:
        return len(self.job_id)

    def take(self, rows: NDArray[np.intp] | slice) -> JobTable:
        """The table of some rows, in their order, with their attempts; a slice takes no memory of its own."""
        names = [f.name for f in fields(self) if f.name not in ("attempts", "began_s")]
        columns = {name: getattr(self, name)[rows] for name in names if self.tells(name)}
        blank = {name: getattr(self, name)[:0] for name in names if name not in columns}
        attempts = None if self.attempts is None else _take_attempts(self.attempts, rows)
        return replace(self, **columns, **blank, attempts=attempts)

    def tells(self, column: str) -> bool:
        """Whether anything was given for a column; one that was left out is one blank for all jobs."""
        values = getattr(self, column)
        return len(values) < 2 or values.strides != (0,)

    def followed_by(self, other: JobTable) -> JobTable:
        """These jobs, then the others, whose times are taken to count from the same instant."""
        names = [f.name for f in fields(self) if f.name not in ("attempts", "began_s")]
        told = [name for name in names if self.tells(name) or other.tells(name)]
        columns = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in told}
        return JobTable(**columns, attempts=_joined(self, other), began_s=self.began_s)

    def by_submit(self) -> JobTable:
        """The same jobs, the earliest submit first; jobs of one instant keep their order."""
        return self.take(np.argsort(self.submit_s, kind="stable"))


def _joined(one: JobTable, other: JobTable) -> Attempts | None:
    if one.attempts is None and other.attempts is None:
        return None
    none = Attempts(np.zeros(1, np.int64), np.empty(0), np.empty(0, np.bool_))
    first = []
    for table in (one, other):
        known = table.attempts
        first.append(np.zeros(len(table) + 1, np.int64) if known is None else known.first)
    a, b = one.attempts or none, other.attempts or none
    bounds = np.concatenate([first[0], first[0][-1] + first[1][1:]])
    return Attempts(bounds, np.concatenate([a.duration_s, b.duration_s]), np.concatenate([a.passed, b.passed]))


def _take_attempts(attempts: Attempts, rows: NDArray[np.intp] | slice) -> Attempts:
    counts = np.diff(attempts.first)[rows]
    first = np.concatenate([[0], np.cumsum(counts)])
    starts = np.repeat(attempts.first[:-1][rows] - first[:-1], counts)
    picked = np.arange(first[-1]) + starts
    return Attempts(first, attempts.duration_s[picked], attempts.passed[picked])
