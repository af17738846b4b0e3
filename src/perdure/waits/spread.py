"""How uncertain an answer is: trees on how far earlier answers of like jobs were off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.waits.boosting import Trees, has_library
from perdure.waits.table import WaitTable

Column = NDArray[np.float64]
NAMES = (
    "peers_request", "rank_request", "rank", "waited_s", "limit_s", "cpus", "pending_jobs_partition",
    "pending_jobs_both", "running_jobs_both", "wait_week_both", "started_recent_account",
    "cpus_pending_over_running_partition", "cpu_h_pending_over_running",
)  # fmt: skip
TREES = Trees(num_iterations=60, learning_rate=0.05, num_leaves=7, min_data_in_leaf=300, feature_fraction=0.5)
FEWEST_ROWS = 2_000  # errors from which trees are grown
SHARE = 0.5  # of the trees; the other half is the same for all, for they are sure of themselves too often
LEAST, MOST = 0.15, 1.5  # decades


@dataclass(frozen=True, slots=True)
class SpreadModel:
    """The mean error to expect of an answer, in decades."""

    typical: float = 1.0
    model: Any = None

    def of(self, asked: WaitTable) -> Column:
        """(n,) the errors to expect."""
        typical = np.full(len(asked), self.typical)
        if self.model is None or not len(asked):
            return typical
        own = np.clip(self.model.predict(asked.columns(NAMES), num_threads=1), LEAST, MOST)
        return np.asarray((1 - SHARE) * typical + SHARE * own, np.float64)


def learn_spread(asked: WaitTable, error: Column, seed: int) -> SpreadModel:
    """Learn from how far answers were off, in decades, in the order of the looks; without LightGBM the same for all.

    The b jobs of an account that asked for the same in one instant weigh as much as ``sqrt(b)`` others.
    """
    size = np.abs(error)
    typical = float(np.clip(size.mean(), LEAST, MOST)) if len(size) else 1.0
    if len(size) < FEWEST_ROWS or not has_library():
        return SpreadModel(typical)
    batch = np.maximum(np.nan_to_num(asked.feature("peers_request").astype(np.float64), nan=1.0), 1.0)
    return SpreadModel(typical, TREES.grow(asked.columns(NAMES), size, "regression", 0.5, seed, weight=batch**-0.5))
