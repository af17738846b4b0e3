"""Ridge regression of the logarithm of the wait on random waves of the features: a smooth companion of trees.

The waves stand for a Gaussian kernel (Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007).
It needs NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from perdure.model.queue_looks import FAIR, STATE
from perdure.waits.boosting import targets
from perdure.waits.features import DERIVED, PEERS, RATIOS, REQUEST
from perdure.waits.protocol import LEAST_WAIT_S
from perdure.waits.table import WaitTable

Column = NDArray[np.float64]
Narrow = NDArray[np.float32]
NAMES = tuple(name for name in (*REQUEST, *DERIVED, *STATE, *RATIOS, *FAIR, *PEERS) if name != "partition")
AS_THEY_ARE = frozenset({*RATIOS, "hour", "weekday", "rank", "rank_request"})  # all others by their logarithm
FARTHEST = 3.0  # standard deviations: beyond, a feature counts as that far
SMALLEST_PRIORITY = 1e-9
ROUNDS = 2  # of estimating what waits that go on will come to
FEW_LOG10, MANY_LOG10 = 0.5, 7.5  # answers stay within 3 s and a year


@dataclass(frozen=True, slots=True)
class Waves:
    """How the ridge is made: `waves` of the kernel's width, each with the given share of the variance."""

    waves: int = 300
    width: float = 0.03  # inverse: the larger, the more local
    height: float = 6.0
    partition_width: float = 0.5
    penalty: float = 100.0

    def fit(self, known: WaitTable, rng: Generator) -> Ridge:
        """Learn from waits that have ended and those that go on."""
        raw = _columns(known)
        mean, scale = _moments(raw)
        partitions = np.unique(known.partition)
        ridge = Ridge(
            mean, scale, partitions,
            (rng.normal(size=(raw.shape[1], self.waves)) * np.sqrt(self.width)).astype(np.float32),
            (rng.normal(size=(len(partitions), self.waves)) * self.partition_width).astype(np.float32),
            rng.uniform(0, 2 * np.pi, self.waves).astype(np.float32),
            np.float32(self.height * np.sqrt(2 / self.waves)), np.zeros(0),
        )  # fmt: skip
        terms, going_on = ridge.terms(known), ~known.started
        square = (terms.T @ terms).astype(np.float64)
        of_ended = square - terms[going_on].T @ terms[going_on]
        wait = np.log10(np.maximum(known.waited_s, LEAST_WAIT_S))
        weights = cho_solve(self._factor(of_ended), terms.T @ np.where(going_on, 0.0, wait))
        factor = self._factor(square)
        for _ in range(ROUNDS):
            weights = cho_solve(factor, terms.T @ targets(known, terms @ weights))
        return Ridge(mean, scale, partitions, ridge.ways, ridge.partition_ways, ridge.phases, ridge.height, weights)

    def _factor(self, square: Column) -> tuple[Column, bool]:
        """Of the penalised square of the terms; the constant is hardly penalised."""
        penalty = np.full(len(square), self.penalty)
        penalty[0] *= 1e-6
        factor, lower = cho_factor(square + np.diag(penalty))
        return np.asarray(factor, np.float64), bool(lower)


@dataclass(frozen=True, slots=True)
class Ridge:
    """Weights of the terms: a constant, the features, the partitions, the waves."""

    mean: Column
    scale: Column
    partitions: NDArray[np.int64]
    ways: Narrow  # (n_features, n_waves)
    partition_ways: Narrow  # (n_partitions, n_waves)
    phases: Narrow
    height: np.float32
    weights: Column

    def predict(self, asked: WaitTable) -> Column:
        """(n,) log10 of the wait."""
        return np.clip(self.terms(asked) @ self.weights, FEW_LOG10, MANY_LOG10)

    def terms(self, table: WaitTable) -> Narrow:
        """(n, n_terms); half as precise as elsewhere, for speed."""
        near = np.clip(np.nan_to_num((_columns(table) - self.mean) / self.scale), -FARTHEST, FARTHEST)
        near, its = near.astype(np.float32), (table.partition[:, None] == self.partitions).astype(np.float32)
        waves = near @ self.ways
        waves += its @ self.partition_ways
        waves += self.phases
        np.cos(waves, out=waves)
        waves *= self.height
        return np.hstack([np.ones((len(table), 1), np.float32), near, its, waves])


def _columns(table: WaitTable) -> Column:
    columns = []
    for name in NAMES:
        values = table.feature(name).astype(np.float64)
        if name == "priority":
            values = np.log10(np.maximum(values, SMALLEST_PRIORITY))
        elif name not in AS_THEY_ARE:
            values = np.sign(values) * np.log10(1 + np.abs(values))
        columns.append(values)
    return np.column_stack(columns)


def _moments(raw: Column) -> tuple[Column, Column]:
    """Mean and standard deviation of each column, of what is known of it; 0 and 1 where nothing is, or all is alike."""
    told = np.isfinite(raw)
    count = np.maximum(told.sum(axis=0), 1)
    mean = np.where(told, raw, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(told, (raw - mean) ** 2, 0.0).sum(axis=0) / count)
    return mean, np.where(spread > 1e-6, spread, 1.0)
