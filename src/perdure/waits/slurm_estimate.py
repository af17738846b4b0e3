"""Slurm's own estimate, as a rival: what ``sbatch --test-only`` says, as far as looks tell what it is made from.

When enough is free if each running job takes its whole limit, and then the work of all that wait before it, by their
limits, over the processors of the partition (`_delayed_job_start_time` in Slurm's job_mgr.c). Nothing is learned but
how many processors there are; nobody else is reckoned with. It has no intervals; here they are by its own errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from perdure.waits.calibrated import Calibrated, Centre, Column, Memory, learn_calibrated
from perdure.waits.protocol import LEAST_WAIT_S, Learned
from perdure.waits.supply import Supply
from perdure.waits.table import WaitTable


@dataclass(frozen=True, slots=True)
class SlurmEstimate:
    """The formula, with intervals by how far it was off."""

    memory: Memory = field(default_factory=lambda: Memory(learn_spread=False))
    name: str = "slurm"

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> Calibrated:
        return learn_calibrated(self, self.memory, seen, now, rng, before)

    def centre(self, known: WaitTable, now: float, rng: Generator, earlier: Centre | None) -> Centre:  # noqa: ARG002
        return ByLimits(Supply.of(known))


@dataclass(frozen=True, slots=True)
class ByLimits:
    """The formula, for the processors that were seen."""

    supply: Supply

    def answer(self, asked: WaitTable) -> tuple[Column, Column, Column]:
        before = self.supply.before(asked)
        wait_s = 3600 * (before.until_free_h() + before.ahead_h)
        return np.log10(np.maximum(wait_s, LEAST_WAIT_S)), np.ones(len(asked)), np.ones(len(asked))
