"""Draws as Python's own generator makes them, so that a simulator's published runs come out the same by seed."""

from __future__ import annotations

import numpy as np


class PythonDraws:
    """Whole numbers below a bound, and orders, from the Mersenne Twister that `seed` begins."""

    def __init__(self, seed: int) -> None:
        self._twister = np.random.RandomState([seed])

    def below(self, bound: int) -> int:
        """From 0 to less than `bound`.

        >>> draws = PythonDraws(0)
        >>> [draws.below(6) for _ in range(8)]
        [3, 3, 0, 2, 4, 3, 3, 2]
        """
        bits = bound.bit_length()
        while True:
            drawn = int.from_bytes(self._twister.bytes(4), "little") >> (32 - bits)
            if drawn < bound:
                return drawn

    def shuffle(self, values: list[int]) -> None:
        """In place."""
        for last in range(len(values) - 1, 0, -1):
            other = self.below(last + 1)
            values[last], values[other] = values[other], values[last]
