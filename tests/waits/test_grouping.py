"""Rows that share a key, against the same in plain Python."""

from statistics import fmean, median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.waits.grouping import codes, grouped

rows = st.lists(st.tuples(st.integers(-3, 3), st.integers(-100, 100)), max_size=30)


def by_key(pairs: list[tuple[int, int]]) -> dict[Any, Any]:
    found = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return dict(sorted(found.items()))


@given(rows)
def test_counts_sums_means_and_medians_are_those_of_each_keys_rows(pairs: list[tuple[int, int]]) -> None:
    keys, values = (np.array([pair[place] for pair in pairs], kind) for place, kind in ((0, np.int64), (1, float)))
    groups, expected = grouped(keys), by_key(pairs)
    assert groups.keys.tolist() == list(expected)
    assert groups.count().tolist() == [len(each) for each in expected.values()]
    assert groups.total(values).tolist() == [sum(each) for each in expected.values()]
    assert groups.mean(values).tolist() == pytest.approx([fmean(each) for each in expected.values()])
    assert groups.median(values).tolist() == [median(each) for each in expected.values()]


@given(rows, st.lists(st.integers(-5, 5), max_size=10))
def test_a_key_is_looked_up_or_said_to_be_unknown(pairs: list[tuple[int, int]], asked: list[Any]) -> None:
    keys = np.array([key for key, _ in pairs], np.int64)
    groups, expected = grouped(keys), by_key(pairs)
    found = groups.look_up(np.array(asked, np.int64), groups.count(), otherwise=-1.0)
    assert found.tolist() == [len(expected[key]) if key in expected else -1.0 for key in asked]


cells = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]), st.sampled_from([1.0, 2.0, np.nan]))


@given(st.lists(cells, min_size=1, max_size=30))
def test_two_rows_have_one_code_where_they_agree_in_every_column(table: list[Any]) -> None:
    found = codes(*(np.array(column) for column in zip(*table, strict=True)))
    same = [tuple("nan" if value != value else value for value in row) for row in table]
    for i, one in enumerate(same):
        for j, other in enumerate(same):
            assert (found[i] == found[j]) == (one == other)
