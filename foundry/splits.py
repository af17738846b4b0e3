"""Splits of the foundry's records by family: what is judged was learnt from no program of its kind.

A family's place hangs on its name alone, so that it stays where it is when other families are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from foundry.records import Record

TEST_FOLDS, FOLDS = 3, 10
SALT = "foundry 16"
"""Of 200 that were tried before anything was judged: the ten folds are of like size and hold both labels."""


def fold(family: str, count: int = FOLDS) -> int:
    """The fold of a family, from 0 on."""
    return int.from_bytes(hashlib.sha256(f"{SALT} {family}".encode()).digest()[:4], "big") % count


def split(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """The published split: records to learn from, and records to judge. No family is in both."""
    train = [record for record in records if fold(record.family) >= TEST_FOLDS]
    return train, [record for record in records if fold(record.family) < TEST_FOLDS]


def folds(records: Sequence[Record], count: int = FOLDS) -> Iterator[tuple[list[Record], list[Record]]]:
    """Yield (learn from, judge) for a cross-validation by family; folds that nobody is in are left out."""
    for number in range(count):
        judged = [record for record in records if fold(record.family, count) == number]
        if judged:
            yield [record for record in records if fold(record.family, count) != number], judged


def without_framework(records: Sequence[Record]) -> Iterator[tuple[str, list[Record], list[Record]]]:
    """Yield (framework, learn from, judge), each framework judged by what was learnt without it.

    Records of other frameworks that share a family with a judged one are left out of what is learnt from.
    """
    for framework in sorted({record.framework for record in records}):
        judged = [record for record in records if record.framework == framework]
        families = {record.family for record in judged}
        yield framework, [r for r in records if r.framework != framework and r.family not in families], judged
