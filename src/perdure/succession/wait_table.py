"""The exact counterfactual: how long a successor would have waited, had it been submitted at each instant.

The simulated queue is forked at each instant of a grid; in the fork a probe comes and the fork goes on until it starts.
That is what a real insertion into the trace gives, to the tick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import JobTable
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.live import LiveQueue
from perdure.succession.replayed import LinkShape, ReplayedQueue

Floats = NDArray[np.float64]
LONGEST_S = 20 * 86_400.0  # a successor that has not started by then counts as waiting just this long


@dataclass(frozen=True, slots=True)
class SuccessorWaits:
    """W(s): row by instant, column by shape, in seconds."""

    instants_s: Floats
    wait_s: Floats

    def at(self, instants_s: Floats, column: int = 0) -> Floats:
        """The waits at instants of the grid. Raises `KeyError` for others."""
        rows = np.searchsorted(self.instants_s, instants_s)
        if (rows >= len(self.instants_s)).any() or (self.instants_s[rows] != instants_s).any():
            raise KeyError("an instant is not one of the grid")
        return np.asarray(self.wait_s[rows, column], np.float64)


def successor_waits(
    queue: ReplayedQueue, shapes: Sequence[LinkShape], instants_s: Floats, tell: Callable[[float], None] | None = None
) -> SuccessorWaits:
    """Fork at each of the rising instants. `tell` hears which share is done."""
    live = LiveQueue.replaying(queue.table, queue.cluster, Slurm(queue.settings), probes_of(shapes))
    wait_s = np.empty((len(instants_s), len(shapes)))
    for row, at_s in enumerate(instants_s.tolist()):
        live.advance(at_s)
        for column in range(len(shapes)):
            start_s = live.start_if_submitted(column, at_s, at_s + LONGEST_S)
            wait_s[row, column] = LONGEST_S if np.isnan(start_s) else start_s - at_s
        if tell is not None:
            tell((row + 1) / len(instants_s))
    return SuccessorWaits(instants_s, wait_s)


def probes_of(shapes: Sequence[LinkShape]) -> JobTable:
    """The shapes as jobs that come when they are told to, of a user of their own."""
    n, limits = len(shapes), np.array([each.limit_s for each in shapes])
    gpus = np.array([each.gpus for each in shapes], np.int64)
    names = np.array([f"successor-{row}" for row in range(n)])
    return JobTable(names, np.zeros(n), gpus, limits, user=np.full(n, "successor"), walltime_s=limits)
