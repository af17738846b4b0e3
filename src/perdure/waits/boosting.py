"""Boosted trees on the logarithm of the wait: which looks they learn from, and what stands for waits that go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import norm

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.waits.protocol import LEAST_WAIT_S
from perdure.waits.table import WaitTable

Column = NDArray[np.float64]
DAY_S = 86_400.0
SPREAD = 0.5  # decades, of waits around their prediction, where what is left of a wait that goes on is estimated
MOST_MORE = 1.5  # decades that such a wait is taken to last beyond what it has come to
BINS = 63


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """Which looks a model learns from: a draw of `rows`, without replacement.

    A look that is `half_life_days` older is half as likely to be drawn. Of the b jobs of an account that ask for the
    same in one instant each is drawn ``b ** -batch_power`` times as likely: they share their fate, and ten batches tell
    more than one of the same size.
    """

    rows: int = 15_000
    half_life_days: float = 10.0
    batch_power: float = 0.5

    def draw(self, known: WaitTable, now: float, rng: Generator) -> NDArray[np.intp]:
        """The rows to learn from, rising."""
        if len(known) <= self.rows:
            return np.arange(len(known))
        batch = np.nan_to_num(known.feature("peers_request").astype(np.float64), nan=1.0)
        age_days = (now - known.poll_s) / DAY_S
        chance = -np.log(2) * age_days / self.half_life_days - self.batch_power * np.log(np.maximum(batch, 1))
        keyed = chance + rng.gumbel(size=len(known))  # the largest of these are such a draw
        return np.sort(np.argpartition(-keyed, self.rows)[: self.rows])


@dataclass(frozen=True, slots=True)
class Trees:
    """How trees are grown: the settings of LightGBM, by its names."""

    num_iterations: int = 150
    learning_rate: float = 0.06
    num_leaves: int = 31
    min_data_in_leaf: int = 100
    feature_fraction: float = 0.3
    bagging_fraction: float = 0.7
    lambda_l2: float = 5.0
    extra_trees: bool = True

    def grow(
        self,
        features: NDArray[np.float32],
        target: Column,
        objective: str,
        level: float,
        seed: int,
        weight: Column | None = None,
    ) -> Any:
        """A model of the mean ("regression") or of a quantile ("quantile"). Raises `MissingExtra`."""
        lightgbm = library()
        settings = {
            "num_iterations": self.num_iterations, "learning_rate": self.learning_rate, "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_data_in_leaf, "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.bagging_fraction, "bagging_freq": 1, "lambda_l2": self.lambda_l2,
            "extra_trees": self.extra_trees, "objective": objective, "alpha": level, "seed": seed, "max_bin": BINS,
            "num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip
        binned = {"max_bin": BINS, "verbosity": -1}
        return lightgbm.train(settings, lightgbm.Dataset(features, target, weight=weight, params=binned))


def library() -> Any:
    """LightGBM. Raises `MissingExtra`, saying how to install it."""
    try:
        import lightgbm
    except ImportError as err:
        raise MissingExtra("gbdt", "LightGBM is not installed", to_install("ml")) from err
    return lightgbm


def has_library() -> bool:
    """Whether LightGBM can be used."""
    try:
        library()
    except MissingExtra:
        return False
    return True


def targets(known: WaitTable, predicted: Column) -> Column:
    """(n,) log10 of each wait; of one that goes on, what it will come to by the prediction and what it has come to.

    That is the mean of a normal distribution around the prediction, cut off at what it has come to.
    """
    so_far = np.log10(np.maximum(known.waited_s, LEAST_WAIT_S))
    z = (so_far - predicted) / SPREAD
    more = predicted + SPREAD * np.exp(norm.logpdf(z) - norm.logsf(z))
    return np.where(known.started, so_far, np.clip(more, so_far, so_far + MOST_MORE))
