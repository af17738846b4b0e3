"""The least that covers: against every subset, where these can be counted."""

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.coordination.cover import MAX_SUMS, smallest_cover


def least(amounts: list[Any], needed: int) -> Any:
    sums = (sum(chosen) for n in range(len(amounts) + 1) for chosen in combinations(amounts, n))
    return min((total for total in sums if total >= needed), default=None)


@given(st.lists(st.integers(0, 1000), max_size=9), st.integers(1, 10_000))
def test_it_is_the_least_there_is(amounts: list[Any], needed: int) -> None:
    named = {str(i): amount for i, amount in enumerate(amounts)}
    chosen = smallest_cover(named, needed)
    best = least(amounts, needed)
    assert (chosen is None) == (best is None)
    if chosen is not None:
        assert sum(named[name] for name in chosen) == best


def least_of_many(amounts: list[Any], needed: int) -> int:
    """By all sums there are: bit s says whether s can be reached."""
    reached = 1
    for amount in amounts:
        reached |= reached << amount
    return needed + ((reached >> needed) & -(reached >> needed)).bit_length() - 1


@given(st.lists(st.integers(1, 10**5), min_size=20, max_size=60), st.floats(0.1, 0.9))
def test_of_many_it_covers_and_is_close_to_the_least(amounts: list[Any], share: float) -> None:
    needed = int(sum(amounts) * share) + 1
    named = {str(i): amount for i, amount in enumerate(amounts)}
    total = sum(named[name] for name in smallest_cover(named, needed))
    assert needed <= total <= least_of_many(amounts, needed) + len(amounts) * (2 * needed / MAX_SUMS + 1)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 10**5), min_size=20, max_size=40), st.integers(0, 3))
def test_where_nearly_all_is_needed_it_is_found(amounts: list[Any], spare: int) -> None:
    """Of sums that count as one the greatest is kept: any other would cover too little."""
    named = {str(i): amount for i, amount in enumerate(amounts)}
    needed = sum(amounts) - spare
    chosen = smallest_cover(named, needed)
    assert chosen is not None
    assert sum(named[name] for name in chosen) >= needed


def test_nothing_is_needed_for_nothing() -> None:
    assert smallest_cover({"a": 5}, 0) == frozenset()
