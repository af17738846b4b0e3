"""How uncertain answers are, to either side."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.waits.checks import made_up_looks
from perdure.waits.features import wait_table
from perdure.waits.spread import FEWEST_ROWS, LEAST, learn_spread


def test_each_side_has_the_errors_of_its_own() -> None:
    table = wait_table(made_up_looks(days=3, jobs=20))
    error = np.where(np.arange(60) % 2 == 0, -0.2, 0.6)
    below, above = learn_spread(table, error, 0).of(table)
    assert below == pytest.approx(np.full(60, LEAST + 0.1))
    assert above == pytest.approx(np.full(60, LEAST + 0.3))


def test_jobs_that_are_off_to_one_side_reach_far_to_that_side_alone() -> None:
    pytest.importorskip("lightgbm")
    table = wait_table(made_up_looks(days=10, jobs=FEWEST_ROWS // 5))
    large = table.feature("cpus") > 8
    off = np.abs(np.random.default_rng(0).normal(0, 0.5, len(table)))
    below, above = learn_spread(table, np.where(large, off, -off), 0).of(table)
    assert above[large].mean() > 1.5 * above[~large].mean()
    assert below[~large].mean() > 1.5 * below[large].mean()


def test_nothing_learned_is_a_decade_either_way() -> None:
    table = wait_table(made_up_looks(days=1, jobs=5))
    below, above = learn_spread(table.take(np.arange(0)), np.zeros(0), 0).of(table)
    assert below.tolist() == above.tolist() == [1.0] * 5
