"""The heap of ticks, against a dictionary of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.simulation.compiled.event_heap import NEVER, Ticks, empty_ticks
from tests.simulation.compiled.in_python import in_python

heap = in_python("event_heap")
ROWS = 9
STEPS = st.lists(st.tuples(st.sampled_from(["push", "push", "pop", "discard"]), st.integers(0, ROWS - 1),
                           st.integers(-3, 6)), max_size=40)  # fmt: skip


def check(ticks: Ticks, wanted: dict[int, int]) -> None:
    """What its docstring says is kept true, and that it holds these rows and no others."""
    size = int(ticks.entry[0].tick)
    entries = [(int(each.tick), int(each.row)) for each in ticks.entry[1 : size + 1]]
    assert {row: tick for tick, row in entries} == wanted
    assert all(entries[i // 2 - 1] < entries[i - 1] for i in range(2, size + 1))
    assert np.flatnonzero(ticks.place).tolist() == sorted(wanted)
    assert all(entries[ticks.place[row] - 1][1] == row for row in wanted)


@settings(max_examples=40)
@given(STEPS)
def test_rows_come_and_go_as_in_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    ticks, there = empty_ticks(ROWS, ROWS), dict[int, int]()
    for what, row, tick in steps:
        if what == "push" and row not in there:
            heap.push(ticks, row, tick)
            there[row] = tick
        elif what == "pop" and there:
            first = min(there, key=lambda each: (there[each], each))
            assert heap.pop(ticks) == first
            del there[first]
        elif what == "discard":
            heap.discard(ticks, row)
            there.pop(row, None)
        check(ticks, there)
        assert heap.first_tick(ticks) == min(there.values(), default=NEVER)
        assert [heap.holds(ticks, each) for each in range(ROWS)] == [each in there for each in range(ROWS)]


@settings(max_examples=40)
@given(st.permutations(range(ROWS)))
def test_equal_ticks_come_out_by_row_whatever_went_in_first(order: list[int]) -> None:
    ticks = empty_ticks(ROWS, ROWS)
    for row in order:
        heap.push(ticks, row, 5)
    assert [heap.pop(ticks) for _ in order] == list(range(ROWS))


def test_the_last_entry_may_have_to_go_up_where_it_takes_the_place_of_one_that_left() -> None:
    """Below a late left branch leaves an entry, and the last one, of the early right branch, comes into its place."""
    ticks = empty_ticks(7, 7)
    for row, tick in enumerate([0, 50, 10, 60, 70, 20, 30]):
        heap.push(ticks, row, tick)
    heap.discard(ticks, 3)
    check(ticks, {0: 0, 1: 50, 2: 10, 4: 70, 5: 20, 6: 30})
    assert [heap.pop(ticks) for _ in range(6)] == [0, 2, 5, 6, 1, 4]


def test_to_discard_a_row_that_is_not_there_changes_nothing() -> None:
    ticks = empty_ticks(3, 3)
    heap.discard(ticks, 1)
    heap.push(ticks, 2, 4)
    heap.discard(ticks, 1)
    check(ticks, {2: 4})
