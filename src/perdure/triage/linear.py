"""A linear model over hashed words, characters and rule names: how a failure's text leans, on NumPy alone.

A log's excerpt becomes one sparse vector of three blocks, each of unit length: single words and pairs of
neighbours, runs of 3 to 5 characters, and the names of the rules that matched. Numbers, paths, addresses and
times are masked first. The model is data only: an NPZ without pickled parts, its digest in its header.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.triage.clean import mask
from perdure.triage.rules import Cause

FORMAT = 1
WORD_BUCKETS, CHAR_BUCKETS, RULE_BUCKETS = 1 << 14, 1 << 15, 1 << 10
BUCKETS = WORD_BUCKETS + CHAR_BUCKETS + RULE_BUCKETS
PARTS = ("weights.npy", "scalars.npy")
CHAR_RUNS = (3, 4, 5)
MAX_EXCERPT_BYTES = 16384

_UNREADABLE = (ValueError, LookupError, TypeError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_LETTERS = bytes(c if chr(c).isalnum() or c in b"_<>" or c > 127 else 32 for c in range(256))
_MIX = np.uint32(0x9E3779B1)


@dataclass(frozen=True, slots=True)
class Features:
    """One excerpt as a sparse vector: `columns` (sorted, distinct) and their `values`."""

    columns: NDArray[np.int64]
    values: NDArray[np.float64]


def features(excerpt: str, causes: Sequence[Cause] = ()) -> Features:
    """The vector of an excerpt and of the rules that matched in its log; the same on every machine."""
    masked = mask(excerpt.encode("utf-8", "replace")[-MAX_EXCERPT_BYTES:]).lower()
    blocks = (_words(masked), _characters(masked) + WORD_BUCKETS, _rules(causes) + (WORD_BUCKETS + CHAR_BUCKETS))
    columns, values = [], []
    for hashed in blocks:
        found, counts = np.unique(hashed, return_counts=True)
        weights = 1.0 + np.log(counts)
        columns.append(found.astype(np.int64))
        values.append(weights / max(1e-12, float(np.sqrt((weights**2).sum()))))
    return Features(np.concatenate(columns), np.concatenate(values))


def _words(masked: bytes) -> NDArray[np.uint32]:
    single = np.array([zlib.crc32(word) for word in masked.translate(_LETTERS).split()], dtype=np.uint32)
    pairs = (single[:-1] * np.uint32(31) + single[1:]) * _MIX
    return np.concatenate([single * _MIX, pairs]) >> np.uint32(32 - 14)


def _characters(masked: bytes) -> NDArray[np.uint32]:
    codes = np.frombuffer(masked, dtype=np.uint8).astype(np.uint32)
    runs = []
    for length in CHAR_RUNS:
        if len(codes) < length:
            break
        run = np.full(len(codes) - length + 1, length, dtype=np.uint32)
        for i in range(length):
            run = run * np.uint32(257) + codes[i : len(codes) - length + 1 + i]
        runs.append((run * _MIX) >> np.uint32(32 - 15))
    return np.concatenate(runs) if runs else np.zeros(0, dtype=np.uint32)


def _rules(causes: Sequence[Cause]) -> NDArray[np.uint32]:
    names = {f"rule {c.name}" for c in causes} | {f"{c.role} {c.category}" for c in causes}
    return np.array([zlib.crc32(name.encode()) % RULE_BUCKETS for name in sorted(names)], dtype=np.uint32)


@dataclass(frozen=True)
class Linear:
    """Weights of a logistic regression, calibrated."""

    weights: NDArray[np.float32]  # (BUCKETS,); the inverse document frequency is multiplied in
    bias: float
    slope: float  # of the calibration: log-odds = slope * score + offset
    offset: float

    def log_odds(self, excerpt: str, causes: Sequence[Cause] = ()) -> float:
        """Natural log-odds that the failure is transient, as if both kinds were equally frequent."""
        return self.log_odds_of(features(excerpt, causes))

    def log_odds_of(self, vector: Features) -> float:
        """The same for a vector that was made before."""
        score = float(self.weights[vector.columns] @ vector.values) + self.bias
        return self.slope * score + self.offset

    def save(self) -> bytes:
        """The bytes of the model's file; equal models give equal bytes."""
        scalars = np.array([self.bias, self.slope, self.offset], dtype=np.float64)
        parts = {"weights.npy": _npy(self.weights.astype(np.float16)), "scalars.npy": _npy(scalars)}
        header = {"format": FORMAT, "buckets": BUCKETS, "sha256": _digest(parts)}
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {"header.json": json.dumps(header).encode(), **parts}.items():
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # not the clock's: equal bytes for equal models
                archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
        return out.getvalue()

    @classmethod
    def load(cls, data: bytes, source: str) -> Linear:
        """Read what `save` wrote; arrays are parsed only after their digest was verified. Raises `InputError`."""
        mend = "Train it anew: python -m perdure.triage.train"
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                header = json.loads(archive.read("header.json"))
                found = header["format"], header["buckets"], header["sha256"]
                parts = {name: archive.read(name) for name in PARTS if found[0] == FORMAT}
        except _UNREADABLE as err:
            raise InputError(source, f"not a model file ({type(err).__name__})", mend) from err
        if found[:2] != (FORMAT, BUCKETS):
            raise InputError(source, f"a model of format {found[0]!r}, not {FORMAT}", mend)
        if found[2] != _digest(parts):
            raise InputError(source, "the model file is damaged: its digest differs", mend)
        weights, scalars = (np.load(io.BytesIO(part), allow_pickle=False) for part in parts.values())
        return cls(weights.astype(np.float32), *(float(x) for x in scalars))


def _npy(array: NDArray[Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _digest(parts: dict[str, bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(parts[name]).digest() for name in sorted(parts))).hexdigest()


def read_model(path: Path) -> Linear:
    """Read a model file. Raises `InputError` where it is missing, damaged or of another format."""
    try:
        return Linear.load(path.read_bytes(), str(path))
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a model file") from err


@lru_cache(maxsize=1)
def own_model() -> Linear:
    """The model that comes with Perdure."""
    source = resources.files("perdure.triage") / "data" / "linear.npz"
    return Linear.load(source.read_bytes(), "linear.npz")
