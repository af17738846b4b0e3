"""A table of jobs made ready for replay: whole ticks, attempts one after another, names as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import JobTable
from perdure.scheduling.asks import Asks
from perdure.simulation.asking import asks_of
from perdure.simulation.restart_cost import FREE, RestartCost

MS_PER_S = 1000
_LONGEST_S = 1e11  # some 3,000 years: ticks of a millisecond times a million GPUs stay below 2**63


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs as columns, shape (n_jobs,), and their attempts; row i is row i of the table. Times are ticks.

    A tick is a second where all times are whole seconds, else a millisecond, to which times are then rounded.
    """

    submit: NDArray[np.int64]
    gpus: NDArray[np.int64]
    walltime: NDArray[np.int64]  # 0 where there is none
    group: NDArray[np.int64]
    groups: tuple[str, ...]
    user: NDArray[np.int64]
    users: tuple[str, ...]
    first: NDArray[np.int64]  # attempts of job i are rows first[i]:first[i + 1] of the next two; at least one
    work: NDArray[np.int64]
    passed: NDArray[np.bool_]
    ticks_per_s: int
    origin_s: float  # in the table's time, the instant of tick 0: by default the first submit
    job_id: NDArray[np.str_]
    asks: Asks = field(default_factory=Asks)
    restart: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # added by each preemption

    @classmethod
    def of(cls, table: JobTable, before_s: float = inf, cost: RestartCost = FREE) -> Workload:
        """Check the table and convert it; tick 0 is not after `before_s`. Raises `InputError`, naming the job."""
        _check(table)
        first, work_s, passed = attempts_of(table)
        origin_s = min(before_s, float(table.submit_s[0])) if len(table) else 0.0
        since_s = table.submit_s - origin_s
        restart_s = cost.of(table.gpus)
        per_s = _ticks_per_s(since_s, work_s, restart_s)
        work = _ticks(work_s, per_s)
        walltime_s = np.where(table.walltime_s > 0, np.minimum(table.walltime_s, _LONGEST_S), 0.0)
        groups, group = np.unique(table.vc, return_inverse=True)
        users, user = np.unique(table.user, return_inverse=True)
        return cls(
            _ticks(since_s, per_s),
            table.gpus.astype(np.int64),
            _ticks(walltime_s, per_s),
            group.astype(np.int64),
            tuple(groups.tolist()),
            user.astype(np.int64),
            tuple(users.tolist()),
            first,
            work,
            passed,
            per_s,
            origin_s,
            table.job_id,
            asks_of(table, origin_s, per_s),
            _ticks(restart_s, per_s),
        )

    def seconds(self, tick: int) -> float:
        """The instant in the table's time."""
        return self.origin_s + tick / self.ticks_per_s

    def name(self, row: int) -> str:
        """The job of a row in a message; a row that somebody made up may have none."""
        known = isinstance(row, int | np.integer) and 0 <= row < len(self)
        return f"job {self.job_id[row]}" if known else f"{row!r}, which is not a job's row"

    def __len__(self) -> int:
        return len(self.submit)


def _check(table: JobTable) -> None:
    def refuse(bad: NDArray[np.bool_], what: str, fix: str) -> None:
        if bad.any():
            raise InputError(f"job {table.job_id[int(np.argmax(bad))]}", what, fix)

    times = (table.submit_s, "submit time"), (table.duration_s, "running time")
    for column, word in times:
        refuse(~np.isfinite(column), f"its {word} is not a number", "Leave the job out, or give it one")
        refuse(np.abs(column) > _LONGEST_S, f"its {word} is too large", "Give times in seconds since the trace began")
    refuse(
        np.abs(table.eligible_s) > _LONGEST_S, "its eligible time is too large", "Give seconds since the trace began"
    )
    refuse(table.duration_s < 0, "its running time is negative", "Leave the job out, or fix the trace")
    refuse(table.gpus < 1, "it asks for no GPU", "Leave jobs without GPUs out")
    if len(table) > 1:
        late = np.concatenate([[False], np.diff(table.submit_s) < 0])
        refuse(late, "it was submitted before the job above it", "Sort the jobs by submit")
    if table.attempts is not None:
        owner = np.repeat(np.arange(len(table)), np.diff(table.attempts.first))
        bad = ~(table.attempts.duration_s >= 0) | (table.attempts.duration_s > _LONGEST_S)
        refuse(np.isin(np.arange(len(table)), owner[bad]), "an attempt has no running time", "Fix the trace")


def attempts_of(table: JobTable) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """Recorded attempts; a job without any has one that takes its running time and passes."""
    n = len(table)
    if table.attempts is None:
        return np.arange(n + 1), table.duration_s.astype(np.float64), np.ones(n, np.bool_)
    counts = np.diff(table.attempts.first)
    first = np.concatenate([[0], np.cumsum(np.maximum(counts, 1))]).astype(np.int64)
    work_s, passed = np.empty(first[-1]), np.ones(first[-1], np.bool_)
    bare = counts == 0
    work_s[first[:-1][bare]] = table.duration_s[bare]
    recorded = np.ones(first[-1], np.bool_)
    recorded[first[:-1][bare]] = False
    work_s[recorded], passed[recorded] = table.attempts.duration_s, table.attempts.passed
    return first, work_s, passed


def _ticks_per_s(*columns: NDArray[np.float64]) -> int:
    return 1 if all((column == np.rint(column)).all() for column in columns) else MS_PER_S


def _ticks(seconds: NDArray[np.float64], per_s: int) -> NDArray[np.int64]:
    return np.rint(seconds * per_s).astype(np.int64)
