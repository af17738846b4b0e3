"""A recurrent network as arrays, and what it says of a text, in NumPy: the definition that other ways to run it equal.

    x_t = embedding[word_t];  h_t = cell(x_t, h_{t-1});  score = head . [max_t h_t, mean_t h_t] + bias

The arrays have PyTorch's layout: the gates of a GRU are r, z, n and those of an LSTM i, f, g, o, stacked by rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perdure.triage.classifiers.features import hashed_words, masked_text
from perdure.triage.classifiers.protocol import Reading

Cell = Literal["gru", "lstm"]
Array = NDArray[np.float32]
BUCKETS = 4096  # numbers of words, 0 included, which stands for none
MAX_WORDS = 300  # of a text: its last ones
UNITS = 64  # of the embedding and of the cell alike
GATES: Mapping[Cell, int] = {"gru": 3, "lstm": 4}


def _shapes(gates: int) -> dict[str, tuple[int, ...]]:
    rows = gates * UNITS
    return {
        "embedding": (BUCKETS, UNITS),
        "input_weights": (rows, UNITS),
        "hidden_weights": (rows, UNITS),
        "input_bias": (rows,),
        "hidden_bias": (rows,),
        "head": (2 * UNITS,),
        "bias": (1,),
    }


SHAPES: Mapping[Cell, Mapping[str, tuple[int, ...]]] = {cell: _shapes(gates) for cell, gates in GATES.items()}


@dataclass(frozen=True)
class Network:
    """The arrays of a network by name, shaped as `SHAPES` says."""

    cell: Cell
    arrays: Mapping[str, Array]


def word_numbers(reading: Reading) -> NDArray[np.int64]:
    """The last words of the masked excerpt as numbers from 1 to ``BUCKETS - 1``, at least one: 0 stands for no word."""
    numbers = hashed_words(masked_text(reading))[-MAX_WORDS:].astype(np.int64) % (BUCKETS - 1) + 1
    return numbers if len(numbers) else np.zeros(1, dtype=np.int64)


def score(network: Network, words: NDArray[np.int64]) -> float:
    """What the network says of a text: positive for transient. `words`, shape (n,) with n >= 1, are numbers."""
    arrays = network.arrays
    inputs = arrays["embedding"][words] @ arrays["input_weights"].T + arrays["input_bias"]
    steps = _gru if network.cell == "gru" else _lstm
    outputs = steps(inputs, arrays["hidden_weights"], arrays["hidden_bias"])
    pooled = np.concatenate([outputs.max(axis=0), outputs.mean(axis=0)])
    return float(pooled @ arrays["head"] + arrays["bias"][0])


def _gru(inputs: Array, weights: Array, bias: Array) -> Array:
    """The outputs h_t, shape (n, UNITS), of a GRU whose reset gate comes after the product."""
    hidden, outputs = np.zeros(UNITS, dtype=np.float32), np.empty((len(inputs), UNITS), dtype=np.float32)
    for t, (x_gates, x_new) in enumerate(zip(inputs[:, : 2 * UNITS], inputs[:, 2 * UNITS :], strict=True)):
        back = weights @ hidden + bias
        gates = _sigmoid(x_gates + back[: 2 * UNITS])
        reset, keep = gates[:UNITS], gates[UNITS:]
        new = np.tanh(x_new + reset * back[2 * UNITS :])
        hidden = outputs[t] = new + keep * (hidden - new)
    return outputs


def _lstm(inputs: Array, weights: Array, bias: Array) -> Array:
    """The outputs h_t, shape (n, UNITS), of an LSTM."""
    hidden, outputs = np.zeros(UNITS, dtype=np.float32), np.empty((len(inputs), UNITS), dtype=np.float32)
    state = np.zeros(UNITS, dtype=np.float32)
    for t, x in enumerate(inputs):
        into, forget, new, out = np.split(x + weights @ hidden + bias, 4)
        state = _sigmoid(forget) * state + _sigmoid(into) * np.tanh(new)
        hidden = outputs[t] = _sigmoid(out) * np.tanh(state)
    return outputs


def _sigmoid(x: Array) -> Array:
    half = np.float32(0.5)
    share: Array = half * np.tanh(half * x) + half  # no overflow for any x
    return share
