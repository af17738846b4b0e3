"""Submit so early as boosted trees expect all but few successors to wait: quantiles from the state of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perdure.succession.planners.features import WIDTH, Floats, state_row, state_rows
from perdure.succession.planners.flat_trees import FlatTrees
from perdure.succession.planners.terms import by_wait, level_of, until_the_end
from perdure.succession.protocol import Decision, TrainingCase, View, below
from perdure.waits.boosting import Trees

LEVELS = (0.5, 0.65, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Boosted:
    grow: Trees = field(
        default_factory=lambda: Trees(
            num_iterations=100, num_leaves=15, min_data_in_leaf=20, feature_fraction=0.5, extra_trees=False
        )
    )
    learned: tuple[FlatTrees, ...] = ()  # for each level
    name: str = "boosted"

    def train(self, lessons: Sequence[TrainingCase], rng: np.random.Generator) -> Boosted:
        """Raises `MissingExtra` where LightGBM is not installed."""
        if not lessons:
            return self
        rows = state_rows([each.view for each in lessons]).astype(np.float32)
        wait_h = np.array([each.wait_s for each in lessons]) / 3600
        seed = int(rng.integers(2**31))
        models = (self.grow.grow(rows, wait_h, "quantile", level, seed) for level in LEVELS)
        return replace(self, learned=tuple(FlatTrees.of_lightgbm(each) for each in models))

    def decide(self, view: View) -> Decision:
        if not self.learned:
            return until_the_end(view, "the trees have not been trained")
        row, level = state_row(view), level_of(view)
        near = min(max(int(np.searchsorted(LEVELS, level)), 1), len(LEVELS) - 1)
        wait_h = [float(self.learned[each].values(row).sum()) for each in (near - 1, near)]
        said_h = float(np.interp(level, (LEVELS[near - 1], LEVELS[near]), np.maximum.accumulate(wait_h)))
        return by_wait(view, max(0.0, 3600 * said_h), f"the {level:.0%} quantile of the wait by boosted trees")

    def arrays(self) -> dict[str, Floats]:
        trees = zip(LEVELS, self.learned, strict=bool(self.learned))
        return {f"{level:g}.{name}": array for level, each in trees for name, array in each.arrays().items()}

    def with_arrays(self, arrays: Mapping[str, Floats]) -> Boosted:
        learned = tuple(FlatTrees.of_arrays(below(f"{level:g}.", arrays), WIDTH) for level in LEVELS)
        return replace(self, learned=learned)
