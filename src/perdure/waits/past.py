"""What a site's history says of what is to come: how long jobs run, and who comes next."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.waits.run_times import RunTimes

DAY_S = 86_400.0
LEAST_SPAN_S = 300.0  # a shorter past says nothing of who comes


def _nothing() -> JobTable:
    return JobTable(np.empty(0, "U1"), np.empty(0), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, slots=True)
class Past:
    """Jobs that are over, the latest last, with times in seconds since the epoch."""

    jobs: JobTable = field(default_factory=_nothing)
    until_s: float = 0.0  # up to when it is whole
    run_times: RunTimes = field(default_factory=RunTimes)
    whole_since_s: float | None = None  # None: since the first job came

    @classmethod
    def of(cls, table: JobTable, until_s: float) -> Past:
        """Of a table as its reader made it, whose times count from `JobTable.began_s`."""
        jobs = since_epoch(table)
        return cls(jobs, until_s, RunTimes.of(jobs.user, jobs.partition, jobs.duration_s, jobs.walltime_s))

    @property
    def since_s(self) -> float:
        """From when on it is whole."""
        if self.whole_since_s is not None:
            return self.whole_since_s
        return float(self.jobs.submit_s[0]) if len(self.jobs) else self.until_s

    @property
    def days(self) -> int:
        """Whole days that it holds."""
        return int(self.span_s // DAY_S)

    @property
    def span_s(self) -> float:
        """Seconds that it holds."""
        return self.until_s - self.since_s

    def only_in(self, partitions: Collection[str]) -> Past:
        """The jobs of some partitions, over the same time. What it says of running times stays as it is."""
        rows = np.flatnonzero(np.isin(self.jobs.partition, list(partitions)))
        return replace(self, jobs=self.jobs.take(rows), whole_since_s=self.since_s)

    def arrivals(self, now_s: float, horizon_s: float, rng: Generator) -> JobTable:
        """Who may come within `horizon_s`: the jobs of past days, drawn again for each day to come, at the same hours.

        A working day is drawn for a working day, where there is one. Of a past shorter than a day, all of it stands for
        each stretch to come, turned at random. Nobody comes where the past is too short to tell.
        """
        if self.days:
            blocks = (self._day(now_s, ahead, rng) for ahead in range(int(np.ceil(horizon_s / DAY_S))))
        elif self.span_s >= LEAST_SPAN_S:
            blocks = (self._turned(now_s, ahead, rng) for ahead in range(int(np.ceil(horizon_s / self.span_s))))
        else:
            return self.jobs.take(np.empty(0, np.intp))
        found = list(blocks)
        rows, submit_s = np.concatenate([rows for rows, _ in found]), np.concatenate([times for _, times in found])
        kept = submit_s <= now_s + horizon_s
        order = np.flatnonzero(kept)[np.argsort(submit_s[kept], kind="stable")]
        unknown = np.full(len(order), np.nan)
        coming = replace(self.jobs.take(rows[order]), attempts=None)
        return replace(coming, submit_s=submit_s[order], start_s=unknown, end_s=unknown, eligible_s=unknown)

    def _day(self, now_s: float, ahead: int, rng: Generator) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Rows of a past day that stands for the one that begins `ahead` days from now, and when they come then."""
        back = np.arange(1, self.days + 1)
        wanted = _is_weekend(now_s + ahead * DAY_S)
        alike = back[[_is_weekend(now_s - days * DAY_S) == wanted for days in back]]
        days = int(rng.choice(alike if len(alike) else back))
        begin_s = now_s - days * DAY_S
        first, last = np.searchsorted(self.jobs.submit_s, (begin_s, begin_s + DAY_S))
        return np.arange(first, last), self.jobs.submit_s[first:last] + (days + ahead) * DAY_S

    def _turned(self, now_s: float, ahead: int, rng: Generator) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        since_s = self.jobs.submit_s - self.since_s + rng.uniform(0, self.span_s)
        return np.arange(len(self.jobs)), now_s + ahead * self.span_s + since_s % self.span_s


def since_epoch(table: JobTable) -> JobTable:
    """The same jobs with times in seconds since the epoch."""
    moved = {name: getattr(table, name) + table.began_s for name in ("submit_s", "start_s", "end_s", "eligible_s")}
    return replace(table, **moved, began_s=0.0)


def _is_weekend(instant_s: float) -> bool:
    """Saturday or Sunday; the first day of the epoch was a Thursday."""
    return (int(instant_s // DAY_S) + 3) % 7 >= 5
