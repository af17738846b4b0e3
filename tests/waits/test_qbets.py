"""QBETS: the binomial bound in closed form, and forgetting at a change."""

from dataclasses import replace
from math import ceil, comb, log
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from perdure.waits import checks
from perdure.waits.features import wait_table
from perdure.waits.qbets import Qbets, upper_place


@pytest.mark.parametrize(("level", "confidence"), [(0.95, 0.95), (0.9, 0.95), (0.5, 0.99)])
def test_the_fewest_waits_for_a_bound(level: float, confidence: float) -> None:
    """The longest of n waits bounds the quantile with the chance 1 - level ** n."""
    fewest = ceil(log(1 - confidence) / log(level))
    assert upper_place(fewest - 1, level, confidence) is None
    assert upper_place(fewest, level, confidence) == fewest - 1


@pytest.mark.parametrize("n", [60, 100, 300])
def test_the_bound_is_the_least_place_that_is_sure_enough(n: int) -> None:
    def sure(
        place: int,
    ) -> Any:  # that the value there lies at or above the quantile: at most `place` of n lie below it
        return sum(comb(n, k) * 0.9**k * 0.1 ** (n - k) for k in range(place + 1))

    place = upper_place(n, 0.9, 0.95)
    assert place is not None
    assert sure(place) >= 0.95 > sure(place - 1)


def test_bounds_are_right_as_often_as_promised() -> None:
    rng, rounds, right = default_rng(1), 2_000, 0.0
    for _ in range(rounds):
        waits = np.sort(rng.exponential(1.0, 100))
        right += float(waits[upper_place(100, 0.9, 0.95)] >= -log(0.1))
    assert right / rounds >= 0.94


def test_what_was_before_a_change_is_forgotten() -> None:
    """Waits become a thousand times as long, and stay so: three batches later the bound has followed."""
    table = wait_table(checks.made_up_looks(jobs=400))
    day = table.poll_s // 86_400
    wait = np.where(day < 6, 60.0, 60_000.0) + np.arange(len(table)) % 50
    table = replace(table, start_s=table.poll_s + wait, seen_until_s=table.poll_s + wait)
    asked, now = table.take(day == 11), 11.5 * 86_400.0
    low = Qbets().learn(table, now, default_rng(0)).quantiles(asked)[:, 0]
    assert (low >= 60_000).all()
    never = Qbets(run=10**6).learn(table, now, default_rng(0)).quantiles(asked)[:, 0]
    assert (never < 1_000).all()
