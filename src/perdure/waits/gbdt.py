"""Boosted trees for three quantiles of the wait, learned again on line; how far they were off sets the intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.waits.boosting import TrainingSample, Trees, library, targets
from perdure.waits.calibrated import Calibrated, Centre, Column, Memory, learn_calibrated
from perdure.waits.median import quantiles_of
from perdure.waits.protocol import LEAST_WAIT_S, LEVELS, Learned
from perdure.waits.table import WaitTable

FEWEST_ROWS = 100  # looks from which trees are grown
NARROWEST = 0.1  # decades of spread to a side


@dataclass(frozen=True, slots=True)
class Gbdt:
    """LightGBM's quantile regression on log10 of the wait, calibrated. Needs the extra ml."""

    sample: TrainingSample = field(default_factory=lambda: TrainingSample(half_life_days=15.0))
    trees: Trees = field(default_factory=Trees)
    memory: Memory = field(default_factory=lambda: Memory(learn_spread=False))
    name: str = "gbdt"

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> Calibrated:
        library()
        return learn_calibrated(self, self.memory, seen, now, rng, before)

    def centre(self, known: WaitTable, now: float, rng: Generator, earlier: Centre | None) -> Centre:
        if len(known) < FEWEST_ROWS:
            return Flat.of(known)
        drawn = known.take(self.sample.draw(known, now, rng))
        seed = int(rng.integers(1 << 30))
        target = estimated(drawn, self.trees, seed, earlier)
        return QuantileTrees(
            drawn.names,
            tuple(self.trees.grow(drawn.features, target, "quantile", level, seed) for level in LEVELS),
        )


@dataclass(frozen=True, slots=True)
class QuantileTrees:
    """A model for each of `LEVELS`."""

    names: tuple[str, ...]
    models: tuple[Any, ...]

    def answer(self, asked: WaitTable) -> tuple[Column, Column, Column]:
        low, middle, high = (predicted(model, asked.columns(self.names)) for model in self.models)
        return middle, np.maximum(middle - low, NARROWEST), np.maximum(high - middle, NARROWEST)


@dataclass(frozen=True, slots=True)
class Flat:
    """The same answer for all, from as good as nothing."""

    quantiles: tuple[float, float, float]  # log10 of the wait at `LEVELS`

    @classmethod
    def of(cls, known: WaitTable) -> Flat:
        low, middle, high = np.log10(quantiles_of(np.maximum(known.waited_s, LEAST_WAIT_S), LEVELS)).tolist()
        return cls((low, middle, high))

    def answer(self, asked: WaitTable) -> tuple[Column, Column, Column]:
        low, middle, high = (np.full(len(asked), each) for each in self.quantiles)
        return middle, np.maximum(middle - low, NARROWEST), np.maximum(high - middle, NARROWEST)


def estimated(known: WaitTable, trees: Trees, seed: int, earlier: Centre | None) -> Column:
    """(n,) log10 of the waits; what those that go on will come to, by `earlier`, or else by those that have ended."""
    going_on, ended = known.take(~known.started), known.take(known.started)
    guess = np.zeros(len(known))
    if earlier is not None:
        guess[~known.started] = earlier.answer(going_on)[0]
    elif len(ended) < FEWEST_ROWS:
        guess[:] = Flat.of(known).quantiles[1]
    else:
        model = trees.grow(ended.features, np.log10(np.maximum(ended.wait_s, LEAST_WAIT_S)), "regression", 0.5, seed)
        guess[~known.started] = predicted(model, going_on.features)
    return targets(known, guess)


def predicted(model: Any, features: NDArray[np.float32]) -> Column:
    """(n,) what a model says, also of no rows."""
    if not len(features):
        return np.zeros(0)
    return np.asarray(model.predict(features, num_threads=1), np.float64)
