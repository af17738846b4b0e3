"""Submit so early as a random forest expects the successor to wait (Breiman, "Random forests", 2001)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.succession.planners.features import WIDTH, Floats, state_row, state_rows
from perdure.succession.planners.flat_trees import FlatTrees
from perdure.succession.planners.terms import by_wait, until_the_end
from perdure.succession.protocol import Decision, TrainingCase, View


@dataclass(frozen=True, slots=True)
class Forest:
    """It learns the mean wait from the state of the queue. The price of overlap changes nothing here."""

    trees: int = 60
    least_leaf: int = 5
    learned: FlatTrees | None = None
    name: str = "forest"

    def train(self, lessons: Sequence[TrainingCase], rng: np.random.Generator) -> Forest:
        """Raises `MissingExtra` where scikit-learn is not installed."""
        try:
            from sklearn.ensemble import RandomForestRegressor
        except ImportError as err:
            raise MissingExtra("planner 'forest'", "scikit-learn is not installed", to_install("ml")) from err
        if not lessons:
            return self
        seed = int(rng.integers(2**31))
        model = RandomForestRegressor(
            self.trees, min_samples_leaf=self.least_leaf, max_features=0.5, random_state=seed, n_jobs=1
        )
        model.fit(state_rows([each.view for each in lessons]), [each.wait_s for each in lessons])
        return replace(self, learned=FlatTrees.of_sklearn([each.tree_ for each in model.estimators_]))

    def decide(self, view: View) -> Decision:
        if self.learned is None:
            return until_the_end(view, "the forest has not been trained")
        said_s = float(self.learned.values(state_row(view).astype(np.float32)).mean())
        return by_wait(view, said_s, "the mean wait by the forest")

    def arrays(self) -> dict[str, Floats]:
        return {} if self.learned is None else self.learned.arrays()

    def with_arrays(self, arrays: Mapping[str, Floats]) -> Forest:
        return replace(self, learned=FlatTrees.of_arrays(arrays, WIDTH))
