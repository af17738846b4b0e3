"""The subset that covers an amount with the least surplus: a knapsack turned round."""

from __future__ import annotations

from collections.abc import Mapping

QUANTA = 1 << 14  # the amount is counted in this many parts: the sum is least up to (items x 1/QUANTA) of it


def smallest_cover(amounts: Mapping[str, int], needed: int) -> frozenset[str] | None:
    """Names whose amounts sum up to at least `needed`, with the least sum. None where all together are too little.

    Sums are counted in parts of ``needed / QUANTA`` and rounded down, so that what is chosen always covers; amounts
    below `QUANTA` in all are exact. Time and memory: items x `QUANTA` bits.

    >>> sorted(smallest_cover({"a": 70, "b": 40, "c": 35}, 75) or ())
    ['b', 'c']
    """
    if needed <= 0:
        return frozenset()
    if sum(amounts.values()) < needed:
        return None
    unit = max(1, needed // QUANTA)
    names = sorted(amounts, key=lambda name: (-amounts[name], name))
    weights = [amounts[name] // unit for name in names]
    goal = -(-needed // unit)
    if sum(weights) < goal:  # what rounding took away is missing: all are needed
        return frozenset(name for name in names if amounts[name])
    return frozenset(names[i] for i in _cover(weights, goal))


def _cover(weights: list[int], goal: int) -> list[int]:
    """Indices whose weights have the least sum of at least `goal`.

    Bit s of a number says whether the sum s can be reached with the items so far. Sums beyond the goal plus the
    heaviest item are never least.
    """
    most = goal + max(weights)
    mask = (1 << (most + 1)) - 1
    reached = [1]
    for weight in weights:
        reached.append((reached[-1] | reached[-1] << weight) & mask)
    beyond = reached[-1] >> goal
    total = goal + (beyond & -beyond).bit_length() - 1
    chosen = []
    for i in range(len(weights) - 1, -1, -1):
        if not reached[i] >> total & 1:  # not without this one
            chosen.append(i)
            total -= weights[i]
    return chosen
