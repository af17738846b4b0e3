"""A small feed-forward network on NumPy: exponential linear units, Adam, dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Column = NDArray[np.float64]
Layers = tuple[tuple[Column, Column], ...]  # weights (n_in, n_out) and biases (n_out,) of each
Slope = Callable[[Column, Column], Column]
"""The derivative of the loss by what the network said, given that and the truth."""
_B1, _B2, _TINY = 0.9, 0.999, 1e-8  # Adam's


def smooth_l1(said: Column, truth: Column) -> Column:
    """Of the loss that is square near 0 and linear beyond 1."""
    return np.clip(said - truth, -1.0, 1.0)


def log_loss(said: Column, truth: Column) -> Column:
    """Of the cross-entropy, where what the network says are log-odds."""
    return 1 / (1 + np.exp(-np.clip(said, -30, 30))) - truth


@dataclass(frozen=True, slots=True)
class Training:
    """How a network is made."""

    hidden: tuple[int, ...] = (64, 48, 32)
    epochs: int = 15
    batch: int = 64
    rate: float = 1e-3
    dropout: float = 0.15

    def fit(self, inputs: Column, truth: Column, slope: Slope, rng: Generator) -> Layers:
        """Learn from (n, n_in) inputs and (n,) truths; at least one."""
        sizes = (inputs.shape[1], *self.hidden, 1)
        layers = [
            (rng.normal(size=(n_in, n_out)) * np.sqrt(2 / max(1, n_in)), np.zeros(n_out))
            for n_in, n_out in pairwise(sizes)
        ]
        layers[-1] = (layers[-1][0] * 0.1, np.array([truth.mean() if slope is smooth_l1 else 0.0]))
        first = [(np.zeros_like(w), np.zeros_like(b)) for w, b in layers]
        second = [(np.zeros_like(w), np.zeros_like(b)) for w, b in layers]
        step = 0
        for _ in range(self.epochs):
            order = rng.permutation(len(inputs))
            for begin in range(0, len(order), self.batch):
                rows, step = order[begin : begin + self.batch], step + 1
                moves = self._backward(layers, inputs[rows], truth[rows], slope, rng)
                for at, move in enumerate(moves):
                    layers[at], first[at], second[at] = self._adam(layers[at], first[at], second[at], move, step)
        return tuple(layers)

    def _backward(
        self, layers: list[tuple[Column, Column]], inputs: Column, truth: Column, slope: Slope, rng: Generator
    ) -> list[tuple[Column, Column]]:
        """The derivatives of the mean loss by the weights and biases of each layer."""
        states, masks = [inputs], []
        for w, b in layers[:-1]:
            mask = (rng.random((len(inputs), w.shape[1])) >= self.dropout) / (1 - self.dropout)
            masks.append(mask)
            states.append(_elu(states[-1] @ w + b) * mask)
        said = (states[-1] @ layers[-1][0] + layers[-1][1])[:, 0]
        back = slope(said, truth)[:, None] / len(inputs)
        moves = []
        for at in range(len(layers) - 1, -1, -1):
            moves.append((states[at].T @ back, back.sum(axis=0)))
            if at:
                kept = states[at] / np.where(masks[at - 1] > 0, masks[at - 1], 1.0)
                back = (back @ layers[at][0].T) * masks[at - 1] * np.where(kept > 0, 1.0, kept + 1.0)
        return moves[::-1]

    def _adam(
        self,
        layer: tuple[Column, Column],
        first: tuple[Column, Column],
        second: tuple[Column, Column],
        move: tuple[Column, Column],
        step: int,
    ) -> tuple[tuple[Column, Column], tuple[Column, Column], tuple[Column, Column]]:
        m = [_B1 * old + (1 - _B1) * new for old, new in zip(first, move, strict=True)]
        v = [_B2 * old + (1 - _B2) * new**2 for old, new in zip(second, move, strict=True)]
        rate = self.rate * np.sqrt(1 - _B2**step) / (1 - _B1**step)
        w, b = (old - rate * mi / (np.sqrt(vi) + _TINY) for old, mi, vi in zip(layer, m, v, strict=True))
        return (w, b), (m[0], m[1]), (v[0], v[1])


def run(layers: Layers, inputs: Column) -> Column:
    """(n,) what the network says."""
    state = inputs
    for w, b in layers[:-1]:
        state = _elu(state @ w + b)
    w, b = layers[-1]
    return np.asarray((state @ w + b)[:, 0], np.float64)


def _elu(values: Column) -> Column:
    return np.where(values > 0, values, np.expm1(np.minimum(values, 0)))
