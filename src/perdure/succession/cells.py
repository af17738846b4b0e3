"""A cell of the study: a trace through a cluster of some size, a shape of links, and all that is calculated of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.scheduling.slurm.settings import (
    BackfillSettings,
    PrioritySettings,
    PriorityWeights,
    SchedulerSettings,
)  # fmt: skip
from perdure.succession.replayed import LinkShape, ReplayedQueue
from perdure.succession.wait_table import SuccessorWaits, successor_waits
from perdure.succession.what_if import WhatIf, WhatIfWaits
from perdure.waits.past import DAY_S

Floats = NDArray[np.float64]
Arrays = dict[str, Floats]
Remember = Callable[[str, Callable[[], Arrays]], Arrays]
"""Hands back what was calculated under a key earlier, or calculates it."""

HOUR_S = 3600.0
LIMIT_S = 48 * HOUR_S
SITE = SchedulerSettings(
    priority=PrioritySettings(weights=PriorityWeights(age=1000, job_size=1000)),
    backfill=BackfillSettings(window_s=4 * DAY_S),
)
VERSION = 1  # of what is calculated: what was remembered of another is calculated again


def wrong_model(settings: SchedulerSettings) -> SchedulerSettings:
    """Jobs have no weight for their size, and backfill is shallower, rarer and looks less far."""
    weights = replace(settings.priority.weights, job_size=0)
    backfill = replace(settings.backfill, window_s=DAY_S, interval_s=120.0, max_job_test=100)
    return replace(settings, priority=replace(settings.priority, weights=weights), backfill=backfill)


WRONG = wrong_model(SITE)


@dataclass(frozen=True, slots=True)
class StudyCell:
    """A replayed queue, the shapes asked about, and the grid of instants at which planners decide."""

    trace: str
    queue: ReplayedQueue
    shapes: tuple[LinkShape, ...]
    step_s: float = HOUR_S
    warm_s: float = 5 * DAY_S  # of the trace, before the first instant
    tail_s: float = 4 * DAY_S  # of the trace, after the last one

    @property
    def instants_s(self) -> Floats:
        first, last = self.queue.table.submit_s[[0, -1]]
        begin = np.ceil((first + self.warm_s) / self.step_s) * self.step_s
        return np.arange(begin, last - self.tail_s, self.step_s)

    def truth(self, remember: Remember, tell: Callable[[float], None] | None = None) -> SuccessorWaits:
        """The exact waits."""
        instants = self.instants_s
        found = remember(
            self._key("truth"), lambda: {"wait_s": successor_waits(self.queue, self.shapes, instants, tell).wait_s}
        )
        return SuccessorWaits(instants, found["wait_s"])

    def what_if(self, how: WhatIf, remember: Remember, tell: Callable[[float], None] | None = None) -> WhatIfWaits:
        """What-if runs under a model of the scheduler."""
        instants = self.instants_s
        found = remember(
            self._key(repr(how)), lambda: {"samples_s": how.waits(self.queue, self.shapes, instants, tell).samples_s}
        )
        return WhatIfWaits(instants, found["samples_s"])

    def _key(self, what: str) -> str:
        said = f"{VERSION} {self.queue.fingerprint} {self.shapes!r} {self.step_s} {self.warm_s} {self.tail_s} {what}"
        return hashlib.sha256(said.encode()).hexdigest()


def with_limits(table: JobTable, most_s: float = LIMIT_S, seed: int = 0) -> JobTable:
    """The trace with limits of whole minutes, at most `most_s`, that no job outlasts.

    A trace without limits gets made-up ones: running times times 1 + Exp(1).
    """
    known = np.isfinite(table.walltime_s)
    made_up = table.duration_s * (1 + np.random.default_rng(seed).exponential(1.0, len(table)))
    limit_s = np.where(known, table.walltime_s, made_up)
    limit_s = np.minimum(60.0 * np.ceil(np.maximum(limit_s, 1.0) / 60.0), most_s)
    return replace(table, walltime_s=limit_s, duration_s=np.minimum(np.maximum(table.duration_s, 1.0), limit_s))
