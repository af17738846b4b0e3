"""What-if runs at instants of a replayed trace: from what could be seen then, when would a successor start?

Jobs that run or wait then are known with their limits, not with their running times; these are drawn from past jobs,
and so are the jobs to come. The scheduler may be another one than the trace went through: a wrong model of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import SchedulerSettings
from perdure.simulation.live import LiveQueue
from perdure.succession.replayed import DAYS_AHEAD_S, LinkShape, ReplayedQueue
from perdure.succession.wait_table import probes_of
from perdure.waits.past import DAY_S, Past

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WhatIfWaits:
    """Waits in each future: (n_instants, n_shapes, n_samples) seconds, each row rising."""

    instants_s: Floats
    samples_s: Floats


@dataclass(frozen=True, slots=True)
class WhatIf:
    """How what-if runs are made."""

    model: SchedulerSettings
    samples: int = 8
    ahead_s: float = DAYS_AHEAD_S  # a wait that is longer in a future counts as just this long
    relearn_s: float = DAY_S  # the past is learned again this often
    seed: int = 0

    def waits(
        self, queue: ReplayedQueue, shapes: Sequence[LinkShape], instants_s: Floats,
        tell: Callable[[float], None] | None = None,
    ) -> WhatIfWaits:  # fmt: skip
        """Ask at each of the rising instants; each instant has draws of its own, whatever others are asked."""
        samples_s = np.empty((len(instants_s), len(shapes), self.samples))
        probes, past, learned = probes_of(shapes), None, -np.inf
        for row, now in enumerate(instants_s.tolist()):
            rng = default_rng([self.seed, int(now)])
            if past is None or now - learned >= self.relearn_s:
                past, learned = queue.past(now, rng), now
            samples_s[row] = self._futures(queue, past, probes, now, rng)
            if tell is not None:
                tell((row + 1) / len(instants_s))
        return WhatIfWaits(instants_s, np.sort(samples_s, axis=2))

    def _futures(self, queue: ReplayedQueue, past: Past, probes: JobTable, now: float, rng: Generator) -> Floats:
        """(n_shapes, n_samples) waits of successors that come at `now`."""
        there = queue.picture(now)
        duration_s = drawn_run_times(there, past, now, rng, self.samples)
        waits = np.empty((len(probes), self.samples))
        for sample in range(self.samples):
            coming = past.arrivals(now, self.ahead_s, rng)
            jobs = replace(there, duration_s=duration_s[:, sample]).followed_by(coming)
            live = LiveQueue.at(jobs, now, queue.cluster, Slurm(self.model), probes, "compiled")
            for probe in range(len(probes)):
                start_s = live.start_if_submitted(probe, now, now + self.ahead_s)
                waits[probe, sample] = self.ahead_s if np.isnan(start_s) else start_s - now
        return waits


def drawn_run_times(there: JobTable, past: Past, now: float, rng: Generator, samples: int) -> Floats:
    """(n_jobs, n_samples) whole running times, in whole seconds: of a job that runs, longer than it has run."""
    elapsed_s = np.where(np.isfinite(there.start_s), now - there.start_s, 0.0)
    drawn = [
        past.run_times.draw(user, partition, limit, elapsed, rng, samples)
        for user, partition, limit, elapsed in zip(
            there.user.tolist(), there.partition.tolist(), there.walltime_s.tolist(), elapsed_s.tolist(), strict=True
        )
    ]
    return np.maximum(1.0, np.rint(np.array(drawn).reshape(len(there), samples)))
