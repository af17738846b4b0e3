"""A trace as it goes through a simulated Slurm: who runs and who waits at an instant, and what was known then."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.simulation.simulate import simulate
from perdure.waits.past import DAY_S, Past, since_epoch

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkShape:
    """What each link of a chain asks for."""

    gpus: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class ReplayedQueue:
    """A trace, its scheduler, and when each job started and ended. Times are seconds since the epoch."""

    table: JobTable
    gpus: int
    settings: SchedulerSettings
    start_s: Floats = field(repr=False)
    end_s: Floats = field(repr=False)

    @classmethod
    def of(cls, table: JobTable, gpus: int, settings: SchedulerSettings) -> ReplayedQueue:
        """Replay a trace, whose wide jobs ask for the whole cluster at most. Raises `InputError`."""
        table = replace(since_epoch(table), gpus=np.minimum(table.gpus, gpus), attempts=None)
        table = replace(table, start_s=np.empty(0), end_s=np.empty(0))
        found = simulate(table, Cluster.parse(f"{gpus}x1"), Slurm(settings))
        return cls(table, gpus, settings, found.start_s, found.end_s)

    @property
    def cluster(self) -> Cluster:
        return Cluster(np.ones(self.gpus, np.int64))

    @property
    def fingerprint(self) -> str:
        """A hash of the trace and of the scheduler: what is calculated from equal ones is equal."""
        seen = hashlib.sha256(f"{self.gpus} {self.settings!r}".encode())
        for each in fields(self.table):
            value = getattr(self.table, each.name)
            seen.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return seen.hexdigest()

    def there(self, now: float) -> NDArray[np.intp]:
        """Rows of the jobs that run or wait at an instant, by submit."""
        came = int(np.searchsorted(self.table.submit_s, now))
        return np.flatnonzero(self.end_s[:came] > now)

    def picture(self, now: float) -> JobTable:
        """These jobs as they are at `now`: those that run with their `start_s`, none with its true running time."""
        rows = self.there(now)
        start_s = np.where(self.start_s[rows] <= now, self.start_s[rows], np.nan)
        jobs = self.table.take(rows)
        return replace(jobs, start_s=start_s, end_s=np.empty(0), duration_s=jobs.walltime_s)

    def past(self, now: float, rng: Generator) -> Past:
        """What is known of earlier jobs at `now`; one that has not ended has a drawn running time."""
        came = int(np.searchsorted(self.table.submit_s, now))
        jobs = self.table.take(np.arange(came))
        over = self.end_s[:came] <= now
        known = Past.of(jobs.take(np.flatnonzero(over)), now)
        shares = np.minimum(1.0, jobs.duration_s[over] / jobs.walltime_s[over]) if over.any() else np.ones(1)
        duration_s = jobs.duration_s.copy()
        duration_s[~over] = np.maximum(1.0, np.rint(rng.choice(shares, int((~over).sum())) * jobs.walltime_s[~over]))
        return replace(known, jobs=replace(jobs, duration_s=duration_s))


def waits_of_like_jobs(
    queue: ReplayedQueue, shape: LinkShape, now: float, most: int, within_s: float = np.inf
) -> Floats:
    """Waits of jobs of about the shape's size that started by `now`, newest start last; of all where none is alike."""
    came = int(np.searchsorted(queue.table.submit_s, now))
    start_s = queue.start_s[:came]
    started = (start_s <= now) & (start_s > now - within_s)
    alike = started & size_class(queue.table.gpus[:came], shape.gpus)
    rows = np.flatnonzero(alike if alike.any() else started)
    rows = rows[np.argsort(start_s[rows], kind="stable")][-most:]
    return np.asarray(start_s[rows] - queue.table.submit_s[rows], np.float64)


def size_class(gpus: NDArray[np.int64], wanted: int) -> NDArray[np.bool_]:
    """Which sizes are within a factor of two of the wanted one."""
    return (gpus * 2 > wanted) & (gpus < wanted * 2)


DAYS_AHEAD_S = 4 * DAY_S  # of arrivals in what-if runs
