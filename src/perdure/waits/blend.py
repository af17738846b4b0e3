"""The default: boosted trees and a ridge, each learned from several draws of the past, averaged and calibrated.

Trees find steps and interactions, the ridge stays smooth; their errors differ, so the mean of both is better than
either. Without LightGBM the ridge answers alone, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import Generator

from perdure.installation import install_command
from perdure.waits.boosting import TrainingSample, Trees, has_library
from perdure.waits.calibrated import Calibrated, Centre, Column, Memory, learn_calibrated
from perdure.waits.gbdt import FEWEST_ROWS, Flat, estimated, predicted
from perdure.waits.protocol import Learned
from perdure.waits.ridge import Ridge, Waves
from perdure.waits.table import WaitTable

OBJECTIVES = ("regression", "regression", "quantile")  # of the trees: two means and a median
RIDGES = 2
RIDGE_SHARE = 0.4  # of the ridges in the mean


@dataclass(frozen=True, slots=True)
class Blend:
    """The mean of three models of trees and two ridges on log10 of the wait, each from a draw of its own."""

    sample: TrainingSample = field(default_factory=lambda: TrainingSample(half_life_days=15.0))
    trees: Trees = field(default_factory=Trees)
    waves: Waves = field(default_factory=Waves)
    memory: Memory = field(default_factory=Memory)
    name: str = "blend"

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> Calibrated:
        learned = learn_calibrated(self, self.memory, seen, now, rng, before)
        if has_library():
            return learned
        missing = f"LightGBM is not installed: the ridge answers alone. Install it: {install_command('ml')}"
        return replace(learned, remarks=(missing, *learned.remarks))

    def centre(self, known: WaitTable, now: float, rng: Generator, earlier: Centre | None) -> Centre:
        if known.started.sum() < FEWEST_ROWS:
            return Flat.of(known)
        trees: list[Any] = []
        for objective in OBJECTIVES if has_library() else ():
            drawn, seed = known.take(self.sample.draw(known, now, rng)), int(rng.integers(1 << 30))
            target = estimated(drawn, self.trees, seed, earlier)
            trees.append(self.trees.grow(drawn.features, target, objective, 0.5, seed))
        ridges = [self.waves.fit(known.take(self.sample.draw(known, now, rng)), rng) for _ in range(RIDGES)]
        return Mean(known.names, tuple(trees), tuple(ridges))


@dataclass(frozen=True, slots=True)
class Mean:
    """The weighted mean of models; one spread for all."""

    names: tuple[str, ...]
    trees: tuple[Any, ...]
    ridges: tuple[Ridge, ...]

    def answer(self, asked: WaitTable) -> tuple[Column, Column, Column]:
        smooth = np.mean([ridge.predict(asked) for ridge in self.ridges], axis=0)
        middle = smooth
        if self.trees:
            features = asked.columns(self.names)
            steps = np.mean([predicted(model, features) for model in self.trees], axis=0)
            middle = RIDGE_SHARE * smooth + (1 - RIDGE_SHARE) * steps
        return middle, np.ones(len(asked)), np.ones(len(asked))
