"""Draws that are not a stream of NumPy's: by what they are for, and as Python's own generator makes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_MASK = (1 << 64) - 1
_SMALL = 21  # values: of more, a sample is drawn by places that have not come yet


def uniform(seed: int, row: int, what: int) -> float:
    """A number in [0, 1) for `what` about a job; always the same for the same three.

    So two policies compared on one seed see the same draws for the same job, however many draws came before. 53 random
    bits.

    Source: G. Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014 (its mixing function).

    >>> uniform(0, 7, 1) == uniform(0, 7, 1) != uniform(1, 7, 1)
    True
    """
    state = _mix(_mix(_mix(seed & _MASK) ^ (row & _MASK)) ^ (what & _MASK))
    return (state >> 11) / (1 << 53)


def _mix(z: int) -> int:
    """SplitMix64's step: one to one on 64-bit numbers."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class PythonDraws:
    """Whole numbers below a bound, and orders, from the Mersenne Twister that `seed` begins.

    As Python's `random` makes them, so that a simulator's published runs come out the same by seed.
    """

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

    def two_of(self, values: Sequence[int]) -> tuple[int, int]:
        """Two that differ in their places, as `random.sample` takes them.

        >>> draws = PythonDraws(0)
        >>> draws.two_of(range(10)), draws.two_of(range(100))
        ((6, 9), (5, 33))
        """
        count, left = len(values), list(values)
        first = self.below(count)
        if count <= _SMALL:
            found, left[first] = left[first], left[-1]
            return found, left[self.below(count - 1)]
        second = self.below(count)
        while second == first:
            second = self.below(count)
        return left[first], left[second]

    def shuffle(self, values: list[int]) -> None:
        """In place."""
        for last in range(len(values) - 1, 0, -1):
            other = self.below(last + 1)
            values[last], values[other] = values[other], values[last]
