"""Draws that depend on what they are for, not on how many were made before."""

from __future__ import annotations

_MASK = (1 << 64) - 1


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
