"""Fitting the linear model: balanced logistic regression by L-BFGS, calibrated on groups it has not seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from perdure.errors import InputError
from perdure.triage.classifiers.features import BUCKETS, Features, features
from perdure.triage.classifiers.protocol import Example

PENALTY = 4.0  # on the squared weights
CALIBRATION_FOLDS = 8
IDENTITY_WORTH = 0.5  # of the scores as they are, against the calibration; in examples of the rarer kind
STIFFNESS = 1.0  # of the weights against what an update would have them be


def fit(examples: Sequence[Example], penalty: float = PENALTY) -> tuple[NDArray[np.float32], float, float, float]:
    """Fit weights and bias to all examples, slope and offset of the calibration to groups that were held out.

    Raises `InputError` where the examples are all of one kind.
    """
    transient = both_kinds(examples)
    matrix = matrix_of([features(example.reading) for example in examples])
    held_out = np.zeros(len(examples))
    for test in group_folds([example.group for example in examples], CALIBRATION_FOLDS):
        train = ~test
        if transient[train].any() and not transient[train].all():
            weights, bias = _regress(matrix[train], transient[train], penalty)
            held_out[test] = matrix[test] @ weights + bias
    slope, offset = calibrate(held_out, transient)
    weights, bias = _regress(matrix, transient, penalty)
    return weights.astype(np.float16).astype(np.float32), bias, slope, offset


def both_kinds(examples: Sequence[Example]) -> NDArray[np.bool_]:
    """Which examples are transient, shape (n_examples,). Raises `InputError` where all are of one kind."""
    transient = np.array([example.transient for example in examples], dtype=bool)
    if transient.all() or not transient.any():
        raise InputError("training data", "all examples have one label", "Give deterministic and transient ones")
    return transient


def nudge(
    weights: NDArray[np.float32],
    bias: float,
    slope: float,
    offset: float,
    examples: Sequence[Example],
    stiffness: float = STIFFNESS,
) -> NDArray[np.float32]:
    """The weights after new examples, at least one: minimise their mean log-loss + stiffness / 2 * |w - w_old|^2 / n.

    Proximal: what the examples do not speak of stays as it is. The calibration stays too, and both kinds weigh alike
    in the mean, so that a stream with few transient failures does not suggest that there are none.
    """
    matrix = matrix_of([features(example.reading) for example in examples])
    touched = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel())
    matrix = matrix[:, touched]
    transient = np.array([example.transient for example in examples], dtype=bool)
    sign, share = np.where(transient, 1.0, -1.0), balanced(transient)
    old, n = weights[touched].astype(np.float64), len(examples)

    def loss(step: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (slope * (matrix @ (old + step) + bias) + offset)
        value = float(share @ np.logaddexp(0.0, -margin)) + stiffness / (2 * n) * float(step @ step)
        pull = -sign * share * slope / (1.0 + np.exp(np.clip(margin, -50, 50)))
        return value, matrix.T @ pull + stiffness / n * step

    step = minimize(loss, np.zeros(len(touched)), jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
    updated = weights.copy()
    updated[touched] = (old + step).astype(np.float16)
    return updated


def group_folds(groups: Sequence[str], count: int) -> Iterator[NDArray[np.bool_]]:
    """Yield test masks: whole groups, dealt by the digest of their name, so that folds do not hang on the order."""
    fold = np.array([int.from_bytes(hashlib.sha256(g.encode()).digest()[:4], "big") % count for g in groups])
    for k in range(count):
        if (fold == k).any():
            yield fold == k


def matrix_of(vectors: Sequence[Features]) -> Any:
    """The vectors as rows of a sparse matrix, shape (n_examples, BUCKETS)."""
    starts = np.concatenate([[0], np.cumsum([len(v.columns) for v in vectors])])
    columns = np.concatenate([v.columns for v in vectors])
    values = np.concatenate([v.values for v in vectors])
    return sparse.csr_matrix((values, columns, starts), shape=(len(vectors), BUCKETS))


def _regress(matrix: Any, transient: NDArray[np.bool_], penalty: float) -> tuple[NDArray[np.float64], float]:
    """Class-balanced: minimise mean log-loss + penalty / (2 n) * |idf-scaled w|^2; the idf is multiplied in after."""
    n = matrix.shape[0]
    seen = np.asarray((matrix > 0).sum(axis=0)).ravel()
    idf = np.log((1.0 + n) / (1.0 + seen)) + 1.0
    used = np.flatnonzero(seen)  # a column that no example has keeps the weight 0
    scaled = (matrix @ sparse.diags(idf)).tocsc()[:, used].tocsr()
    sign, share = np.where(transient, 1.0, -1.0), balanced(transient)

    def loss(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margin = sign * (scaled @ w[:-1] + w[-1])
        value = float(share @ np.logaddexp(0.0, -margin)) + penalty / (2 * n) * float(w[:-1] @ w[:-1])
        pull = -sign * share / (1.0 + np.exp(np.clip(margin, -50, 50)))
        return value, np.append(scaled.T @ pull + penalty / n * w[:-1], pull.sum())

    found = minimize(loss, np.zeros(len(used) + 1), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    weights = np.zeros(matrix.shape[1])
    weights[used] = found.x[:-1] * idf[used]
    return weights, float(found.x[-1])


def calibrate(score: NDArray[np.float64], transient: NDArray[np.bool_]) -> tuple[float, float]:
    """Platt's slope and offset, both classes weighted alike; the slope is kept in a sane range.

    The fewer scores there are of the rarer kind, the nearer they stay to a slope of 1 and no offset: of three scores
    nobody can tell where the kinds part.
    """
    sign, share = np.where(transient, 1.0, -1.0), balanced(transient)
    trust = IDENTITY_WORTH / max(1, min(int(transient.sum()), int((~transient).sum())))

    def loss(x: NDArray[np.float64]) -> float:
        return float(share @ np.logaddexp(0.0, -sign * (x[0] * score + x[1]))) + trust * float(
            (x[0] - 1.0) ** 2 + x[1] ** 2
        )

    found = minimize(loss, np.array([1.0, 0.0]), method="L-BFGS-B", bounds=[(0.05, 5.0), (-3.0, 3.0)])
    return float(found.x[0]), float(found.x[1])


def balanced(transient: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Weights of the examples, with which both classes weigh one half."""
    share: NDArray[np.float64] = np.where(transient, 0.5 / max(1, transient.sum()), 0.5 / max(1, (~transient).sum()))
    return share
