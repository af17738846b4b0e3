"""Lines of waiting jobs, against lists of jobs in the order in which they came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.simulation.compiled.tournament_tree import ANY, NOBODY, Lines, empty_lines
from tests.simulation.compiled.in_python import in_python

tree = in_python("tournament_tree")
GPUS = [1, 1, 1, 2, 2, 4, 4, 4, 4, 4]
STEPS = st.lists(st.tuples(st.integers(0, len(GPUS) - 1), st.integers(1, 9)), max_size=60)


def check(lines: Lines) -> None:
    """What its docstring says is kept true."""
    for size in lines.sizes:
        root, slots = 2 * size.begin, int(size.slots)
        least = lines.least[root : root + 2 * slots]
        assert all(least[i] == min(least[2 * i], least[2 * i + 1]) for i in range(1, slots))
        held = [slot for slot in range(slots) if least[slots + slot] < NOBODY]
        assert len(held) == size.waiting
        assert all(slot < size.used <= slots for slot in held)
        assert all(lines.job[lines.row[size.begin + slot]].slot == slot for slot in held)


def in_line(lines: Lines, place: int, longest: int | np.int64) -> list[int]:
    """The jobs of a line that are no longer than this, found one after another."""
    size, found, slot = lines.sizes[place], [], -1
    while (slot := int(tree.first_in(lines, size, slot + 1, longest))) >= 0:
        assert tree.length_in(lines, size, slot) <= longest
        found.append(int(tree.row_in(lines, size, slot)))
    return found


@settings(max_examples=40)
@given(STEPS)
def test_a_line_finds_the_first_jobs_that_are_short_enough(steps: list[tuple[int, int]]) -> None:
    lines, there = empty_lines(np.array(GPUS)), dict[int, int]()
    for row, length in steps:
        if row in there:
            tree.leave(lines, row)
            del there[row]
        else:
            tree.stand(lines, row, length)
            there[row] = length
    check(lines)
    for place, gpus in enumerate(lines.sizes["gpus"].tolist()):
        for longest in (0, 3, 6, ANY):
            wanted = [row for row, length in there.items() if GPUS[row] == gpus and length <= longest]
            assert in_line(lines, place, longest) == wanted
    assert tree.narrowest(lines) == min((GPUS[row] for row in there), default=NOBODY)


@pytest.mark.parametrize("times", [1, 2, 3, 7, 20])
def test_a_full_line_is_moved_together_and_keeps_its_order(times: int) -> None:
    """Four jobs in eight slots: each time the first goes to the end of the line."""
    lines, order = empty_lines(np.array([8] * 4)), [0, 1, 2, 3]
    for row in order:
        tree.stand(lines, row, row + 1)
    for _ in range(times):
        tree.leave(lines, order[0])
        tree.stand(lines, order[0], order[0] + 1)
        order = [*order[1:], order[0]]
        check(lines)
        assert in_line(lines, 0, ANY) == order
    assert in_line(lines, 0, 2) == [row for row in order if row < 2]


def test_a_line_that_empties_begins_anew() -> None:
    lines = empty_lines(np.array([1, 1]))
    for _ in range(50):
        tree.stand(lines, 1, 7)
        assert lines.job[1].slot == 0
        tree.leave(lines, 1)
    assert in_line(lines, 0, ANY) == []
    assert tree.narrowest(lines) == NOBODY


def test_without_jobs_there_is_no_line() -> None:
    assert tree.narrowest(empty_lines(np.zeros(0, np.int64))) == NOBODY
