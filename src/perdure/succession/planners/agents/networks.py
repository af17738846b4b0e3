"""Trained networks as arrays, run with NumPy: serving an agent needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.succession.protocol import below

Floats = NDArray[np.float64]
EPSILON = 1e-5  # of layer normalisation, torch's


@dataclass(frozen=True, slots=True)
class Encoder:
    """One layer of a transformer over the looks at a queue, of which the last one's place is what is read."""

    heads: int
    arrays: Mapping[str, Floats]  # by the names of torch's TransformerEncoderLayer, and "embed.*", "place"

    def __call__(self, looks: Floats) -> Floats:
        """(looks, width) -> (d,)."""
        at = self.arrays
        x = looks @ at["embed.weight"].T + at["embed.bias"] + at["place"]
        x = _normed(x + self._attended(x), at["norm1.weight"], at["norm1.bias"])
        inner = np.maximum(x @ at["linear1.weight"].T + at["linear1.bias"], 0.0)
        x = _normed(x + inner @ at["linear2.weight"].T + at["linear2.bias"], at["norm2.weight"], at["norm2.bias"])
        return np.asarray(x[-1])

    def _attended(self, x: Floats) -> Floats:
        at, n = self.arrays, len(x)
        query, key, value = np.split(x @ at["self_attn.in_proj_weight"].T + at["self_attn.in_proj_bias"], 3, axis=1)
        q, k, v = (each.reshape(n, self.heads, -1).transpose(1, 0, 2) for each in (query, key, value))
        score = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
        weight = np.exp(score - score.max(axis=2, keepdims=True))
        mixed = (weight / weight.sum(axis=2, keepdims=True)) @ v
        return np.asarray(
            mixed.transpose(1, 0, 2).reshape(n, -1) @ at["self_attn.out_proj.weight"].T + at["self_attn.out_proj.bias"]
        )


@dataclass(frozen=True, slots=True)
class ServedNetwork:
    """What an agent thinks of waiting and of submitting: two numbers, of which the larger one wins."""

    encoder: Encoder | None  # else looks are laid one behind the other
    layers: tuple[tuple[Floats, Floats], ...]  # weights and biases
    tanh: bool  # between layers, else max(0, x)

    def __call__(self, looks: Floats) -> Floats:
        x = looks.reshape(-1) if self.encoder is None else self.encoder(looks)
        for place, (weight, bias) in enumerate(self.layers):
            x = weight @ x + bias
            if place < len(self.layers) - 1:
                x = np.tanh(x) if self.tanh else np.maximum(x, 0.0)
        return np.asarray(x)

    def arrays(self) -> dict[str, Floats]:
        """By name, with what tells how they are put together."""
        found = {
            "tanh": np.array([float(self.tanh)]),
            "heads": np.array([float(self.encoder.heads if self.encoder else 0)]),
        }
        for place, (weight, bias) in enumerate(self.layers):
            found |= {f"layer.{place}.weight": weight, f"layer.{place}.bias": bias}
        encoder = {} if self.encoder is None else self.encoder.arrays
        return found | {f"encoder.{name}": array for name, array in encoder.items()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Floats], looks: int, width: int) -> ServedNetwork:
        """Raises `ValueError` and `KeyError` for what is no network over so many looks of this width."""
        heads, tanh = int(arrays["heads"][0]), bool(arrays["tanh"][0])
        count = sum(name.startswith("layer.") for name in arrays) // 2
        layers = tuple((arrays[f"layer.{place}.weight"], arrays[f"layer.{place}.bias"]) for place in range(count))
        found = cls(Encoder(heads, below("encoder.", arrays)) if heads else None, layers, tanh)
        if found(np.zeros((looks, width))).shape != (2,):
            raise ValueError("it does not tell two numbers")
        return found


def _normed(x: Floats, weight: Floats, bias: Floats) -> Floats:
    spread = np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    return np.asarray((x - x.mean(axis=1, keepdims=True)) / spread * weight + bias)
