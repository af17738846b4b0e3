"""What a simulation found: when each job ran, and how busy the GPUs were."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.placement.room import Shares


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """Attempts that ran, as columns of one length, in the order in which they ended."""

    job: NDArray[np.int64]  # row of the table
    number: NDArray[np.int64]  # 1 for a job's first
    submit_s: NDArray[np.float64]  # when it came to wait
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    ran_s: NDArray[np.float64]  # less than end - start where it was preempted
    passed: NDArray[np.bool_]
    node: NDArray[np.int64]  # the first of its nodes when it ended; -1 where GPUs are only counted
    record: NDArray[np.int64]
    """Row of the recorded attempt that says how it ended: its own, or the one whose fault of a node it met again. A job
    without recorded attempts counts as having one."""
    lost_s: NDArray[np.float64]  # of `ran_s` what restarts after preemptions took


@dataclass(frozen=True, slots=True)
class SpanLog:
    """Stretches of time during which a job held its GPUs, as columns of one length, in the order of their ends."""

    job: NDArray[np.int64]
    number: NDArray[np.int64]  # of the attempt
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    shares: tuple[Shares, ...]  # nodes, and how many GPUs of each; node -1 where GPUs are only counted


@dataclass(frozen=True, slots=True)
class Result:
    """Jobs as columns, shape (n_jobs,), row i being job i of the table; times in seconds, as in the table."""

    policy: str
    placement: str
    seed: int
    start_s: NDArray[np.float64]  # of the first attempt
    end_s: NDArray[np.float64]  # of the last attempt
    preempted: NDArray[np.int64]  # times that it lost its GPUs to another
    promoted: NDArray[np.int64]
    passed: NDArray[np.bool_]  # how the last attempt ended
    attempts: AttemptLog
    events: int  # arrivals, ends, and instants at which an order changed of itself
    busy_gpu_s: float
    total_gpus: int
    spans: SpanLog | None = None  # where they were asked for

    @property
    def makespan_s(self) -> float:
        """Last end minus the earliest instant at which anybody came."""
        if not len(self.end_s):
            return 0.0
        return float(self.end_s.max() - self.attempts.submit_s.min())

    @property
    def utilisation(self) -> float:
        """Share of GPU time that was allocated, over the makespan."""
        whole = self.total_gpus * self.makespan_s
        return self.busy_gpu_s / whole if whole else 0.0

    def digest(self) -> str:
        """A hash of the whole schedule: equal for equal schedules, whatever computed them."""
        seen = hashlib.sha256()
        log = self.attempts
        jobs = self.start_s, self.end_s, self.preempted, self.promoted
        for column in (*jobs, log.job, log.number, log.start_s, log.end_s, log.node):
            seen.update(np.ascontiguousarray(column).tobytes())
        return seen.hexdigest()
