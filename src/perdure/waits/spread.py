"""How uncertain an answer is, to either side: trees on how far earlier answers of like jobs were off.

A job whose answer can hardly be too late may well be too early by far: what is to be expected below and above is
learned apart, so that an interval reaches far only to the side where it must.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
LEAST, MOST = 0.05, 1.0  # decades


@dataclass(frozen=True, slots=True)
class SideSpread:
    """The mean error to expect to one side, errors to the other side counting as none; in decades."""

    typical: float = 1.0
    model: Any = None

    def of(self, asked: WaitTable) -> Column:
        """(n,) the errors to expect."""
        typical = np.full(len(asked), self.typical)
        if self.model is None or not len(asked):
            return typical
        own = np.clip(LEAST + self.model.predict(asked.columns(NAMES), num_threads=1), LEAST, MOST)
        return np.asarray((1 - SHARE) * typical + SHARE * own, np.float64)


@dataclass(frozen=True, slots=True)
class SpreadModel:
    """The errors to expect to either side."""

    below: SideSpread = field(default_factory=SideSpread)
    above: SideSpread = field(default_factory=SideSpread)

    def of(self, asked: WaitTable) -> tuple[Column, Column]:
        """(n,) each: by how much a wait may be shorter, and longer, than its answer."""
        return self.below.of(asked), self.above.of(asked)


def learn_spread(asked: WaitTable, error: Column, seed: int) -> SpreadModel:
    """Learn from how far answers were off, in decades, in the order of the looks; without LightGBM the same for all.

    The b jobs of an account that asked for the same in one instant weigh as much as ``sqrt(b)`` others.
    """
    batch = np.maximum(np.nan_to_num(asked.feature("peers_request").astype(np.float64), nan=1.0), 1.0)

    def side(short: Column) -> SideSpread:
        typical = float(np.clip(LEAST + short.mean(), LEAST, MOST)) if len(short) else 1.0
        if len(short) < FEWEST_ROWS or not has_library():
            return SideSpread(typical)
        features = asked.columns(NAMES)
        return SideSpread(typical, TREES.grow(features, short, "regression", 0.5, seed, weight=batch**-0.5))

    return SpreadModel(side(np.maximum(-error, 0.0)), side(np.maximum(error, 0.0)))
