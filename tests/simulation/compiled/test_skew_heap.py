"""Skew heaps that share their links, against sorted lists."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.simulation.compiled.kernel import Records
from perdure.simulation.compiled.skew_heap import empty_skew
from tests.simulation.compiled.in_python import in_python

skew_heap = in_python("skew_heap")
ROWS, HEAPS = 10, 3
KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=ROWS, max_size=ROWS)
STEPS = st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, HEAPS - 1)), max_size=40)


def keyed(keys: list[tuple[int, int]]) -> Records:
    """Rows in no heap; the higher row has the lower label."""
    skew = empty_skew(len(keys))
    for row, (key, then) in enumerate(keys):
        skew[row].key, skew[row].then, skew[row].label = key, then, len(keys) - row
    return skew


def rank(skew: Records, row: int) -> tuple[int, int, int]:
    return int(skew[row].key), int(skew[row].then), int(skew[row].label)


def rows_below(skew: Records, root: int) -> list[int]:
    """All rows of a heap; each comes after the one above it, and knows it."""
    if root < 0:
        return []
    found = [root]
    for child in (int(skew[root].left), int(skew[root].right)):
        if child >= 0:
            assert skew[child].above == root
            assert rank(skew, root) < rank(skew, child)
            found += rows_below(skew, child)
    return found


@settings(max_examples=25)
@given(KEYS, STEPS)
def test_each_heap_has_its_own_rows_and_the_least_on_top(
    keys: list[tuple[int, int]], steps: list[tuple[int, int]]
) -> None:
    skew, roots, there = keyed(keys), [-1] * HEAPS, [set[int]() for _ in range(HEAPS)]
    for row, heap in steps:
        at = next((i for i in range(HEAPS) if row in there[i]), None)
        if at is None:
            roots[heap] = int(skew_heap.add(skew, roots[heap], row))
            there[heap].add(row)
        else:
            roots[at] = int(skew_heap.remove(skew, roots[at], row))
            there[at].remove(row)
        for root, rows in zip(roots, there, strict=True):
            assert sorted(rows_below(skew, root)) == sorted(rows)
            assert root == min(rows, key=lambda each: rank(skew, each), default=-1)
            assert root < 0 or skew[root].above == -1


@settings(max_examples=25)
@given(KEYS)
def test_what_is_removed_from_the_top_comes_out_sorted(keys: list[tuple[int, int]]) -> None:
    skew, root, out = keyed(keys), -1, []
    for row in range(ROWS):
        root = skew_heap.add(skew, root, row)
    while root >= 0:
        out.append(int(root))
        root = skew_heap.remove(skew, root, root)
    assert out == sorted(range(ROWS), key=lambda row: rank(skew, row))


@settings(max_examples=25)
@given(KEYS, st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
def test_rows_precede_each_other_by_key_then_then_then_label(keys: list[tuple[int, int]], a: int, b: int) -> None:
    skew = keyed(keys)
    assert skew_heap.precedes(skew, a, b) == (rank(skew, a) < rank(skew, b))


def test_a_row_may_come_back_with_another_key() -> None:
    skew = keyed([(1, 0), (2, 0), (3, 0)])
    root = -1
    for row in range(3):
        root = skew_heap.add(skew, root, row)
    root = skew_heap.remove(skew, root, 2)
    skew[2].key = 0
    root = skew_heap.add(skew, root, 2)
    assert root == 2
    assert sorted(rows_below(skew, root)) == [0, 1, 2]
