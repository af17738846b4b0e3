"""A failure's text as numbers: one sparse vector over hashed words, characters and rule names.

It has three blocks, each of unit length: single words and pairs of neighbours, runs of 3 to 5 characters, and the names
of the rules that matched. Numbers, paths, addresses and times are masked first.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.triage.classifiers.protocol import Reading
from perdure.triage.evidence.rule import Cause
from perdure.triage.text.masking import mask

WORD_BUCKETS, CHAR_BUCKETS, RULE_BUCKETS = 1 << 14, 1 << 15, 1 << 10
BUCKETS = WORD_BUCKETS + CHAR_BUCKETS + RULE_BUCKETS
CHAR_RUNS = (3, 4, 5)
MAX_EXCERPT_BYTES = 16384

_LETTERS = bytes(c if chr(c).isalnum() or c in b"_<>" or c > 127 else 32 for c in range(256))
_MIX = np.uint32(0x9E3779B1)


@dataclass(frozen=True, slots=True)
class Features:
    """One excerpt as a sparse vector: `columns` (sorted, distinct) and their `values`."""

    columns: NDArray[np.int64]
    values: NDArray[np.float64]


def features(reading: Reading) -> Features:
    """The vector of an excerpt and of the rules that matched in its log; the same on every machine."""
    masked = masked_text(reading)
    blocks = (
        _words(masked),
        _characters(masked) + WORD_BUCKETS,
        _rules(reading.causes) + (WORD_BUCKETS + CHAR_BUCKETS),
    )
    columns, values = [], []
    for hashed in blocks:
        counts = np.bincount(hashed)  # buckets are few: faster than sorting them
        found = np.flatnonzero(counts > 0)  # four times faster than of counts themselves
        weights = 1.0 + np.log(counts[found])
        columns.append(found.astype(np.int64))
        values.append(weights / max(1e-12, float(np.sqrt((weights**2).sum()))))
    return Features(np.concatenate(columns), np.concatenate(values))


def masked_text(reading: Reading) -> bytes:
    """The excerpt in lower case, numbers, paths, addresses and times masked."""
    return mask(reading.excerpt.encode("utf-8", "replace")[-MAX_EXCERPT_BYTES:]).lower()


def hashed_words(masked: bytes) -> NDArray[np.uint32]:
    """The words in order, each as its CRC-32, shape (n_words,)."""
    return np.array([zlib.crc32(word) for word in masked.translate(_LETTERS).split()], dtype=np.uint32)


def _words(masked: bytes) -> NDArray[np.uint32]:
    single = hashed_words(masked)
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
    names = {f"rule {c.name}" for c in causes} | {f"{c.role} {c.wider}" for c in causes}
    return np.array([zlib.crc32(name.encode()) % RULE_BUCKETS for name in sorted(names)], dtype=np.uint32)
