"""Draws are those of Python's own generator with the same seed."""

from __future__ import annotations

import random

import pytest

from perdure.scheduling.draws import PythonDraws


@pytest.mark.parametrize("seed", [0, 5, 42, 2**31])
def test_the_numbers_and_orders_are_pythons(seed: int) -> None:
    ours, theirs = PythonDraws(seed), random.Random(seed)
    assert [ours.below(bound) for bound in range(1, 200)] == [theirs.randrange(bound) for bound in range(1, 200)]
    first, second = list(range(20)), list(range(20))
    ours.shuffle(first)
    theirs.shuffle(second)
    assert first == second
