"""What-if runs from a look alone: the jobs before this one, drawn from what the look adds up, through the partition.

A look tells how many jobs run and wait before it, on how many processors and for how many hours by their limits. In
each of `futures` the partition is `SLOTS` equal slots; those in use are given back at random instants up to the limits,
the jobs before it take theirs in turn, each for a random share of the mean, and it starts where enough slots are free.
Limits are not used up and others overtake: how waits follow from that is learned, by partition, from looks whose jobs
have started. Live queues are simulated job by job instead (`perdure.waits.rollout`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.waits.calibrated import Calibrated, Centre, Column, Memory, learn_calibrated
from perdure.waits.gbdt import NARROWEST
from perdure.waits.grouping import grouped
from perdure.waits.protocol import LEAST_WAIT_S, LEVELS, Learned
from perdure.waits.supply import Demand, Supply
from perdure.waits.table import WaitTable

SLOTS = 16
MOST_AHEAD = 48  # jobs before it that are placed one by one; others are placed as that many larger ones
ALIKE = 50.0  # looks of a partition that weigh as much as all partitions together, where its own factor is learned
AT_ONCE = 2_000  # looks


@dataclass(frozen=True, slots=True)
class LookRollout:
    """Futures of what each look adds up, put right by how waits came out."""

    futures: int = 16
    memory: Memory = field(default_factory=Memory)
    name: str = "rollout"

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> Calibrated:
        return learn_calibrated(self, self.memory, seen, now, rng, before)

    def centre(self, known: WaitTable, now: float, rng: Generator, earlier: Centre | None) -> Centre:  # noqa: ARG002
        draws = Draws(rng.random((self.futures, SLOTS)), 2 * rng.random((self.futures, MOST_AHEAD)))
        supply, ended = Supply.of(known), known.take(known.started)
        if not len(ended):
            return Simulated(supply, draws)
        wait = np.log10(np.maximum(ended.wait_s, LEAST_WAIT_S))
        said = np.median(Simulated(supply, draws).waits(ended), axis=1)
        its = grouped(ended.partition)
        slope = _slope(said - its.mean(said)[its.member], wait - its.mean(wait)[its.member])
        off, trust = wait - slope * said, its.count() / (its.count() + ALIKE)
        everywhere = float(np.median(off))
        return Simulated(
            supply, draws, slope, its.keys, everywhere + trust * (its.median(off) - everywhere), everywhere,
            float(np.quantile(wait, 0.05)),
        )  # fmt: skip


def _slope(said: Column, wait: Column) -> float:
    """By how much longer waits were where longer ones were simulated: 1 where simulation tells all, 0 where nothing."""
    return float(np.clip(said @ wait / max(float(said @ said), 1e-9), 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Draws:
    """The chances of each future, the same for all looks."""

    left: Column  # (futures, SLOTS) of what is left of a running job's limit, twice the mean being the most
    takes: Column  # (futures, MOST_AHEAD) of its mean limit that a job before it takes, up to twice


@dataclass(frozen=True, slots=True)
class Simulated:
    """The futures, and how waits follow from them: a slope, and decades by partition."""

    supply: Supply
    draws: Draws
    slope: float = 1.0
    partitions: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    off: Column = field(default_factory=lambda: np.zeros(0))
    off_otherwise: float = 0.0
    least: float = 0.0  # log10 of the shortest wait that is said

    def answer(self, asked: WaitTable) -> tuple[Column, Column, Column]:
        waits = self.slope * self.waits(asked)
        low, middle, high = np.quantile(waits, LEVELS, axis=1) if len(asked) else np.zeros((3, 0))
        off = np.full(len(asked), self.off_otherwise)
        if len(self.partitions):
            place = np.minimum(np.searchsorted(self.partitions, asked.partition), len(self.partitions) - 1)
            off = np.where(self.partitions[place] == asked.partition, self.off[place], off)
        said = np.maximum(middle + off, self.least)
        return said, np.maximum(middle - low, NARROWEST), np.maximum(high - middle, NARROWEST)

    def waits(self, asked: WaitTable) -> Column:
        """(n, futures) log10 of the wait in each future."""
        parts = [
            starts_h(self.supply.before(asked.take(np.arange(begin, min(begin + AT_ONCE, len(asked))))), self.draws)
            for begin in range(0, len(asked), AT_ONCE)
        ]
        found = np.concatenate(parts) if parts else np.zeros((0, len(self.draws.left)))
        return np.asarray(np.log10(np.maximum(3600 * found, LEAST_WAIT_S)), np.float64)


def starts_h(before: Demand, draws: Draws) -> Column:
    """(n, futures) hours until each job starts."""
    in_use = np.arange(SLOTS) < np.rint(before.running * SLOTS)[:, None]
    free_h = np.where(in_use[:, None, :], 2 * before.left_h[:, None, None] * draws.left[None], 0.0)
    free_h.sort(axis=2)
    placed = np.minimum(np.ceil(before.ahead_jobs), MOST_AHEAD)
    each = np.maximum(placed, 1.0)
    slots = _slots(before.ahead / each)
    hours = before.ahead_h / each * SLOTS / slots  # of one, on its slots
    for turn in range(int(placed.max(initial=0))):
        rows = np.flatnonzero(placed > turn)
        _take(free_h, rows, slots[rows], hours[rows, None] * draws.takes[None, :, turn])
    wanted = _slots(before.wanted) - 1
    return np.asarray(np.take_along_axis(free_h, wanted[:, None, None], axis=2)[:, :, 0], np.float64)


def _slots(share: Column) -> NDArray[np.intp]:
    return np.clip(np.ceil(share * SLOTS), 1, SLOTS).astype(np.intp)


def _take(free_h: Column, rows: NDArray[np.intp], slots: NDArray[np.intp], hours: Column) -> None:
    """Give one job of each row this many of the slots that are free first, for this long."""
    its = free_h[rows]
    start_h = np.take_along_axis(its, (slots - 1)[:, None, None], axis=2)
    taken = np.arange(SLOTS) < slots[:, None, None]
    free_h[rows] = np.sort(np.where(taken, start_h + hours[:, :, None], its), axis=2)
