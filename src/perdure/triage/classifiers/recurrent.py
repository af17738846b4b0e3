"""Sibylla-style recurrent networks: a GRU or an LSTM reads the last words of a failure's text, in their order.

Zhang et al., "Sibylla: To Retry or Not To Retry on Deep Learning Job Failure", USENIX ATC 2022, publishes neither its
layer sizes nor its words. Here words are hashed (no word of a site's logs is in a model's file), embedded in 64
dimensions and read by 64 units; the largest and the mean of their outputs over the text make the score. Training
needs PyTorch (extra ``rnn``). A model is served by ONNX Runtime, or where that is not installed by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError, MissingExtra
from perdure.triage.classifiers.model_file import FIX, array_bytes, array_of, pack, unpack
from perdure.triage.classifiers.network import SHAPES, Cell, Network, score, word_numbers
from perdure.triage.classifiers.protocol import Example, Reading

FORMAT = 1
SCALARS = "scalars.npy"


@dataclass(frozen=True)
class Recurrent:
    """A network that has learnt, calibrated."""

    network: Network
    slope: float  # of the calibration: log-odds = slope * score + offset
    offset: float

    def log_odds(self, reading: Reading) -> float:
        """Natural log-odds that the failure is transient, as if both kinds were equally frequent."""
        return self.slope * self._score(word_numbers(reading)) + self.offset

    @cached_property
    def _score(self) -> Callable[[NDArray[np.int64]], float]:
        from perdure.triage.classifiers.onnx import runtime_score

        try:
            return runtime_score(self.network)
        except MissingExtra:
            return lambda words: score(self.network, words)

    def update(self, examples: Sequence[Example]) -> Recurrent:
        """A few small steps towards the new examples. Raises `MissingExtra` without PyTorch."""
        if not examples:
            return self
        from perdure.triage.classifiers.descent import update

        return Recurrent(update(self.network, examples, self.slope, self.offset), self.slope, self.offset)

    def save(self) -> bytes:
        """The bytes of the model's file; equal models give equal bytes."""
        parts = {_part(name): array_bytes(array.astype(np.float16)) for name, array in self.network.arrays.items()}
        return pack(self.network.cell, FORMAT, {**parts, SCALARS: array_bytes(np.array([self.slope, self.offset]))})


@dataclass(frozen=True, slots=True)
class RecurrentClassifier:
    """A reference: slower to learn than the linear model, and no better."""

    name: Cell

    def fit(self, examples: Sequence[Example], seed: int = 0) -> Recurrent:
        """Fit a network and its calibration; see `descent.fit`. Raises `InputError`, and `MissingExtra`."""
        from perdure.triage.classifiers.descent import fit

        return Recurrent(*fit(self.name, examples, seed))

    def load(self, data: bytes, source: str) -> Recurrent:
        """Read what `Recurrent.save` wrote. Raises `InputError` for anything else."""
        shapes = SHAPES[self.name]
        parts = unpack(data, source, self.name, FORMAT, (*map(_part, shapes), SCALARS))
        arrays = {name: array_of(parts[_part(name)]).astype(np.float32) for name in shapes}
        scalars = array_of(parts[SCALARS])
        if any(arrays[name].shape != shape for name, shape in shapes.items()) or scalars.shape != (2,):
            raise InputError(source, "the arrays in the model file are not of the network's shapes", FIX)
        return Recurrent(Network(self.name, arrays), float(scalars[0]), float(scalars[1]))


def _part(name: str) -> str:
    return f"{name}.npy"


GRU = RecurrentClassifier("gru")
LSTM = RecurrentClassifier("lstm")
