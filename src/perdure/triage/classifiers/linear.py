"""A linear model over hashed words, characters and rule names: how a failure's text leans, on NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.triage.classifiers.features import Features, features
from perdure.triage.classifiers.model_file import array_bytes, array_of, pack, unpack
from perdure.triage.classifiers.protocol import Example, Reading

NAME = "linear"
FORMAT = 2
PARTS = ("weights.npy", "scalars.npy")


@dataclass(frozen=True)
class Linear:
    """Weights of a logistic regression, calibrated."""

    weights: NDArray[np.float32]  # (BUCKETS,); the inverse document frequency is multiplied in
    bias: float
    slope: float  # of the calibration: log-odds = slope * score + offset
    offset: float

    def log_odds(self, reading: Reading) -> float:
        """Natural log-odds that the failure is transient, as if both kinds were equally frequent."""
        return self.log_odds_of(features(reading))

    def log_odds_of(self, vector: Features) -> float:
        """The same for a vector that was made before."""
        # Not by BLAS, whose threads cost more than this takes.
        score = float((self.weights[vector.columns] * vector.values).sum()) + self.bias
        return self.slope * score + self.offset

    def update(self, examples: Sequence[Example]) -> Linear:
        """The nearest weights to these that the new examples agree with (`regression.nudge`)."""
        if not examples:
            return self
        from perdure.triage.classifiers.regression import nudge

        return replace(self, weights=nudge(self.weights, self.bias, self.slope, self.offset, examples))

    def save(self) -> bytes:
        """The bytes of the model's file; equal models give equal bytes."""
        scalars = np.array([self.bias, self.slope, self.offset], dtype=np.float64)
        weights = self.weights.astype(np.float16)
        return pack(NAME, FORMAT, {"weights.npy": array_bytes(weights), "scalars.npy": array_bytes(scalars)})


class LinearClassifier:
    """The default: trains in seconds, decides in milliseconds."""

    name = NAME

    def fit(self, examples: Sequence[Example], seed: int = 0) -> Linear:  # noqa: ARG002  (nothing is drawn)
        """Fit weights and calibration; see `regression.fit`."""
        from perdure.triage.classifiers.regression import fit

        return Linear(*fit(examples))

    def load(self, data: bytes, source: str) -> Linear:
        """Read what `Linear.save` wrote. Raises `InputError` for anything else."""
        parts = unpack(data, source, NAME, FORMAT, PARTS)
        weights, scalars = (array_of(parts[name]) for name in PARTS)
        return Linear(weights.astype(np.float32), *(float(x) for x in scalars))


LINEAR = LinearClassifier()


def read_model(path: Path) -> Linear:
    """Read a model file. Raises `InputError` where it is missing, damaged or of another format."""
    try:
        return LINEAR.load(path.read_bytes(), str(path))
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a model file") from err


@lru_cache(maxsize=1)
def own_model() -> Linear:
    """The model that comes with Perdure."""
    source = resources.files("perdure.triage") / "data" / "linear.npz"
    return LINEAR.load(source.read_bytes(), "linear.npz")
