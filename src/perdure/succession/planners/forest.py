"""Submit so early as a random forest expects the successor to wait (Breiman, "Random forests", 2001)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.succession.planners.features import state_row, state_rows
from perdure.succession.planners.terms import by_wait, until_the_end
from perdure.succession.protocol import Decision, TrainingCase, View

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FlatTrees:
    """The trees of a forest one behind the other, as arrays; a leaf is its own child."""

    roots: Ints
    feature: Ints
    threshold: NDArray[np.float64]
    left: Ints
    right: Ints
    value: NDArray[np.float64]

    @classmethod
    def of(cls, grown: Sequence[Any]) -> FlatTrees:
        """Of trees as scikit-learn has them."""
        counts = [tree.node_count for tree in grown]
        roots = np.concatenate([[0], np.cumsum(counts)])[:-1].astype(np.int64)
        left, right = (
            np.concatenate([
                np.where(child < 0, np.arange(len(child)), child) + root
                for child, root in ((getattr(tree, side), root) for tree, root in zip(grown, roots, strict=True))
            ]).astype(np.int64)
            for side in ("children_left", "children_right")
        )  # fmt: skip
        feature = np.concatenate([np.maximum(tree.feature, 0) for tree in grown]).astype(np.int64)
        threshold = np.concatenate([tree.threshold for tree in grown])
        return cls(roots, feature, threshold, left, right, np.concatenate([tree.value[:, 0, 0] for tree in grown]))

    def mean(self, row: NDArray[np.float64]) -> float:
        """The mean of what all trees say."""
        row, node = row.astype(np.float32), self.roots
        while True:
            below = np.where(row[self.feature[node]] <= self.threshold[node], self.left[node], self.right[node])
            if (below == node).all():
                return float(self.value[node].mean())
            node = below


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
        return replace(self, learned=FlatTrees.of([each.tree_ for each in model.estimators_]))

    def decide(self, view: View) -> Decision:
        if self.learned is None:
            return until_the_end(view, "the forest has not been trained")
        return by_wait(view, self.learned.mean(state_row(view)), "the mean wait by the forest")
