"""A predictor of medians made one of intervals: by how far off its answers of the last weeks were.

Each time it learns it keeps what it said before. What it said of the looks since then, not knowing what would come of
them, is held against what came: the errors, in units of the spread that it gave itself, are the distribution of the
next one (`perdure.waits.conformal`). Who learns for the first time lets it learn as of some earlier days before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.waits.conformal import PROMISED, ScoreQuantiles, score_quantiles, widening
from perdure.waits.protocol import INTERVAL, LEAST_WAIT_S, LEVELS, Learned
from perdure.waits.spread import SpreadModel, learn_spread
from perdure.waits.table import WaitTable

Column = NDArray[np.float64]
DAY_S = 86_400.0
FIRST_SPREAD = 0.7  # decades either way, before anything has been held against what came
FEWEST = 50  # answers held against what came, before they count
STRETCH = 1.0375  # levels lie farther from the middle by so much: 80% intervals are made for 83%
LONGEST_LOG10 = 9.0  # 30 years


class Centre(Protocol):
    """A median and a spread to either side, in decades."""

    def answer(self, asked: WaitTable) -> tuple[Column, Column, Column]:
        """(n,) each: log10 of the wait in seconds; how far it spreads below, and above, both positive."""


class Teacher(Protocol):
    """A way to make centres."""

    @property
    def name(self) -> str:
        """Of the predictor."""

    def centre(self, known: WaitTable, now: float, rng: Generator, earlier: Centre | None) -> Centre:
        """Learn from what is known at `now`; `earlier` was learned before."""


@dataclass(frozen=True, slots=True)
class Memory:
    """How far back answers are held against what came."""

    days: float = 21.0
    half_life_days: float = 20.0  # an error so old weighs half as much as a new one
    first_days: tuple[float, ...] = (12.0, 9.0, 6.0, 3.0)  # back from the first learning: when it learns before
    guard_days: float = 7.0  # of these the intervals must have held, or they are widened
    learn_spread: bool = True  # from the errors; else the spread that the centre gives itself is left as it is


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A centre at one instant, the errors of earlier ones, and those earlier ones."""

    now: float
    centre: Centre
    errors: ScoreQuantiles
    spread: SpreadModel = field(default_factory=SpreadModel)
    widened: float = 1.0
    earlier: tuple[Calibrated, ...] = ()  # oldest first, none with earlier ones of its own
    remarks: tuple[str, ...] = ()

    def quantiles(self, asked: WaitTable, levels: Sequence[float] = LEVELS) -> NDArray[np.float64]:
        middle, below, above = self.centre.answer(asked)
        shorter, longer = self.spread.of(asked)
        reach = self._reach(levels)
        found = middle[:, None] + np.where(reach < 0, (below * shorter)[:, None], (above * longer)[:, None]) * reach
        return np.asarray(10 ** np.clip(found, np.log10(LEAST_WAIT_S), LONGEST_LOG10), np.float64)

    def _reach(self, levels: Sequence[float]) -> Column:
        """(n_levels,) how many spreads a level lies from the centre, which is the median."""
        if len(self.errors.scores) < FEWEST:
            low, high = np.log(np.asarray(levels)), np.log1p(-np.asarray(levels))
            return np.asarray(FIRST_SPREAD * (low - high) / np.log(INTERVAL[1] / INTERVAL[0]), np.float64)
        side = np.asarray(levels) - 0.5
        reach = self.errors.at((0.5 + side * STRETCH).tolist()) * self.widened
        return np.where(side < 0, np.minimum(reach, 0.0), np.where(side > 0, np.maximum(reach, 0.0), 0.0))


def learn_calibrated(
    teacher: Teacher, memory: Memory, seen: WaitTable, now: float, rng: Generator, before: Learned | None
) -> Calibrated:
    """Learn at `now`, with the errors of what was said before: by `before`, or as of some days before `now`."""
    known = seen.evidence_at(now)
    earlier = _earlier(before, now, memory)
    if not earlier:
        earlier = _as_of_days_before(teacher, memory, known, now, rng)
    centre = teacher.centre(known, now, rng, earlier[-1].centre if earlier else None)
    ends = [*(each.now for each in earlier), now][1:]
    held = [_held(each, known, end) for each, end in zip(earlier, ends, strict=True)]
    rows = known.take(np.concatenate([each.rows for each in held]) if held else np.zeros(0, np.intp))
    spread, seed = SpreadModel(), int(rng.integers(1 << 30))
    if memory.learn_spread and len(rows) >= FEWEST:
        spread = _spread(rows, held, seed)
    errors = _errors(rows, held, spread, now, memory)
    promised = [each for each, said in zip(held, earlier, strict=True) if len(said.errors.scores) >= FEWEST]
    held_share, widened = _guard(known, promised, now, memory)
    remarks: tuple[str, ...] = ()
    if widened > 1:
        remarks = (
            f"The 80% intervals of the last {memory.guard_days:.0f} days held {held_share:.0%} of the waits: "
            f"they are widened by the factor {widened:.2f}",
        )
    return Calibrated(now, centre, errors, spread, widened, earlier, remarks)


def _earlier(before: Learned | None, now: float, memory: Memory) -> tuple[Calibrated, ...]:
    if not isinstance(before, Calibrated):
        return ()
    all_of_them = (*before.earlier, replace(before, earlier=()))
    return tuple(each for each in all_of_them if now - memory.days * DAY_S <= each.now < now)


def _as_of_days_before(
    teacher: Teacher, memory: Memory, known: WaitTable, now: float, rng: Generator
) -> tuple[Calibrated, ...]:
    made: list[Calibrated] = []
    for days in memory.first_days:
        then = now - days * DAY_S
        past = known.evidence_at(then)
        if past.started.sum() >= FEWEST:
            centre = teacher.centre(past, then, rng, made[-1].centre if made else None)
            made.append(Calibrated(then, centre, score_quantiles(*_nothing())))
    return tuple(made)


def _nothing() -> tuple[Column, NDArray[np.bool_], Column]:
    return np.zeros(0), np.zeros(0, bool), np.zeros(0)


@dataclass(frozen=True, slots=True)
class _Held:
    """What was said of looks, held against what is known by now; (n,) each."""

    rows: NDArray[np.intp]  # of what is known
    error: Column  # in units of the spread that the centre gave itself
    ratio: Column  # of the error to the reach of the 80% interval as it was said


def _held(said: Calibrated, known: WaitTable, until: float) -> _Held:
    rows = np.flatnonzero((known.poll_s >= said.now) & (known.poll_s < until))
    asked = known.take(rows)
    middle, below, above = said.centre.answer(asked)
    wait = np.log10(np.maximum(asked.waited_s, LEAST_WAIT_S))
    low, high = np.log10(said.quantiles(asked, INTERVAL)).T
    reach = np.where(wait < middle, middle - low, high - middle)
    error = (wait - middle) / np.where(wait < middle, below, above)
    return _Held(rows, error, np.abs(wait - middle) / np.maximum(reach, 1e-6))


def _spread(rows: WaitTable, held: Sequence[_Held], seed: int) -> SpreadModel:
    """From the errors of all waits that have ended, and of those that go on beyond what was said."""
    error = np.concatenate([each.error for each in held])
    told = rows.started | (error > 0)
    return learn_spread(rows.take(told), error[told], seed)


def _errors(rows: WaitTable, held: Sequence[_Held], spread: SpreadModel, now: float, memory: Memory) -> ScoreQuantiles:
    if not held:
        return score_quantiles(*_nothing())
    error = np.concatenate([each.error for each in held])
    scores = error / np.where(error < 0, *spread.of(rows))
    age_days = (now - rows.poll_s) / DAY_S
    return score_quantiles(scores, ~rows.started, 0.5 ** (age_days / memory.half_life_days))


def _guard(known: WaitTable, held: Sequence[_Held], now: float, memory: Memory) -> tuple[float, float]:
    """Last week's intervals; a wait that still goes on counts once it has left its interval."""
    ratio = np.concatenate([np.zeros(0), *(each.ratio for each in held)])
    rows = known.take(np.concatenate([np.zeros(0, np.intp), *(each.rows for each in held)]))
    counts = (rows.poll_s >= now - memory.guard_days * DAY_S) & (rows.started | (ratio > 1))
    return widening(ratio[counts] if counts.sum() >= FEWEST else np.zeros(0), PROMISED)
