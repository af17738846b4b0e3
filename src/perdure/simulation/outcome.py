"""What a loop leaves behind, in ticks; and the result made of it, in seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.placement.room import Shares
from perdure.simulation.result import AttemptLog, Result, SpanLog
from perdure.simulation.workload import Workload
from perdure.simulation.world import Trail

Ints = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Jobs, shape (n_jobs,), then the columns of `AttemptLog`."""

    start: Ints
    end: Ints
    preempted: Ints
    promoted: Ints
    job: Ints
    number: Ints
    came: Ints
    began: Ints
    ended: Ints
    ran: Ints
    node: Ints
    record: Ints
    lost: Ints
    events: int
    busy: int
    spans: tuple[tuple[int, int, int, int, Shares], ...] | None = None

    @classmethod
    def of(cls, trail: Trail, spans: bool) -> ReplayOutcome:
        """What the plain loop left."""
        log = np.array(trail.log, np.int64).reshape(-1, 9).T
        start, end, preempted, promoted = np.array([trail.start, trail.end, trail.preempted, trail.promoted], np.int64)
        columns = (
            start,
            end,
            preempted,
            promoted,
            log[0],
            log[1],
            log[2],
            log[3],
            log[4],
            log[5],
            log[6],
            log[7],
            log[8],
        )
        return cls(*columns, trail.events, trail.busy, tuple(trail.spans) if spans else None)

    def result(self, jobs: Workload, policy: str, placement: str, seed: int, total_gpus: int) -> Result:
        """The same in seconds of the table's time."""

        def at(ticks: Ints) -> NDArray[np.float64]:
            return jobs.origin_s + ticks / jobs.ticks_per_s

        passed = jobs.passed[self.record]
        last = np.zeros(len(jobs), np.bool_)
        last[self.job] = passed  # attempts are in the order of their ends: a job's last one stays
        log = AttemptLog(
            self.job.astype(np.int64),
            self.number.astype(np.int64),
            at(self.came),
            at(self.began),
            at(self.ended),
            self.ran / jobs.ticks_per_s,
            passed,
            self.node.astype(np.int64),
            self.record.astype(np.int64),
            np.minimum(self.lost, self.ran) / jobs.ticks_per_s,
        )
        return Result(
            policy,
            placement,
            seed,
            at(self.start),
            at(self.end),
            self.preempted.astype(np.int64),
            self.promoted.astype(np.int64),
            last,
            log,
            self.events,
            self.busy / jobs.ticks_per_s,
            total_gpus,
            None if self.spans is None else _span_log(self.spans, jobs),
        )


def _span_log(spans: tuple[tuple[int, int, int, int, Shares], ...], jobs: Workload) -> SpanLog:
    job, number, start, end = np.array([span[:4] for span in spans], np.int64).reshape(-1, 4).T
    start_s, end_s = (jobs.origin_s + ticks / jobs.ticks_per_s for ticks in (start, end))
    return SpanLog(job, number, start_s, end_s, tuple(span[4] for span in spans))
