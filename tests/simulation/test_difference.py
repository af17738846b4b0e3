"""Paired differences between schedules: how large, how sure, and the same draws for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.simulation.by_day import MEASURES, DayTotals, day_totals
from perdure.simulation.difference import PairedDifference, differences, discovered
from perdure.simulation.groups import GroupKind, groupings
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs

DAY = 86_400
ALL = (None, "")


def totals(jct_s: object, n_jobs: list[int] | None = None) -> DayTotals:
    """Of all jobs alone, by the mean JCT of each day; waits and slow-downs are alike."""
    jct_s = np.array(jct_s, float)
    many = np.full(len(jct_s), 1) if n_jobs is None else np.array(n_jobs)
    each = np.array([jct_s * many, np.log(jct_s) * many, many, many])[:, None, :]
    return DayTotals((ALL,), 0, many[None, :], each)


def against(mine: list[Any], theirs: Sequence[DayTotals], measure: str = "jct_s") -> PairedDifference:
    return differences(mine, theirs)[ALL][measure]


def test_totals_of_days_and_groups_by_hand() -> None:
    table = jobs((1, 0, 10), (1, 1, 10), (2, DAY + 5, 20), user=["eve", "bob", "eve"])
    found = day_totals(table, simulate(table, Cluster.parse("1x2"), "fifo"), groupings(table))
    assert (found.groups, found.first_day, found.jobs.tolist()) == ((ALL,), 0, [[2, 1]])  # no group has jobs enough
    assert found.totals[MEASURES.index("jct_s"), 0].tolist() == [20.0, 20.0]
    assert found.totals[MEASURES.index("wait_s"), 0].tolist() == [0.0, 0.0]
    many = jobs(*[(1, i, 10) for i in range(20)], (8, 30, 10), user=["eve"] * 20 + ["bob"])
    found = day_totals(many, simulate(many, Cluster.parse("1x8"), "fifo"), groupings(many))
    assert found.groups == (ALL, (GroupKind.USER, "eve"), (GroupKind.GPUS, "1"))  # 20 jobs, and one virtual cluster


def test_days_are_those_of_utc() -> None:
    table = jobs((1, 0, 10), (1, 7200, 10), began_s=DAY - 3600.0)
    found = day_totals(table, simulate(table, Cluster.parse("1x1"), "fifo"), ())
    assert (found.first_day, found.jobs.tolist()) == (0, [[1, 1]])


def test_jobs_that_fare_alike_have_no_difference_and_no_doubt() -> None:
    days = totals(np.arange(1, 21))
    found = against([days], [days])
    assert (found.change, found.low, found.high, found.is_sure) == (0.0, 0.0, 0.0, False)


def test_what_is_better_by_the_same_share_each_day_is_sure_to_the_digit() -> None:
    theirs = np.arange(10, 40)
    found = against([totals(theirs / 2)], [totals(theirs)])
    assert (found.share, found.is_sure) == (-0.5, True)
    assert found.low == pytest.approx(-0.5)
    assert found.high == pytest.approx(-0.5)


def test_one_day_that_makes_the_whole_difference_is_not_sure() -> None:
    theirs = np.full(30, 100.0)
    theirs[12] = 100_000.0
    found = against([totals(np.full(30, 100.0))], [totals(theirs)])
    assert found.share < -0.9
    assert not found.is_sure


def test_a_year_of_days_goes_round_so_that_the_last_day_counts_as_the_first() -> None:
    spread = []
    for odd in (0, 59):
        theirs = np.full(60, 100.0)
        theirs[odd] = 3000.0
        found = against([totals(np.full(60, 100.0))], [totals(theirs)])
        assert found.low is not None
        spread.append(found.low)
    assert spread[0] == pytest.approx(spread[1], abs=0.03)


def test_an_interval_of_ten_blocks_is_that_of_student() -> None:
    """Days that are drawn independently: the t of nine degrees of freedom, and the variance of a sample of ten."""
    theirs = np.where(np.arange(10) < 5, 99.0, 101.0)
    found = against([totals(np.full(10, 100.0))], [totals(theirs)])
    assert found.high is not None
    assert found.high == pytest.approx(2.262 * 0.01 / 9**0.5, rel=0.06)


def test_many_jobs_on_few_days_have_no_interval() -> None:
    few = totals([20.0] * 3, [50] * 3)
    found = against([totals([10.0] * 3, [50] * 3)], [few])
    assert (found.share, found.low, found.is_sure) == (-0.5, None, False)


def test_a_day_counts_by_its_jobs() -> None:
    mine, theirs = totals([10.0] * 10, [9] + [1] * 9), totals([20.0] + [10.0] * 9, [9] + [1] * 9)
    found = against([mine], [theirs])
    assert (found.jobs, found.mean, found.other) == (18, 10.0, 15.0)


@pytest.mark.parametrize("empty", [0, 1, 9])
@pytest.mark.parametrize("days", range(1, 10))
def test_an_interval_is_told_from_seven_days_with_jobs_on(days: int, empty: int) -> None:
    many = [1] * days + [0] * empty
    found = against([totals([1.0] * len(many), many)], [totals([2.0] * len(many), many)])
    assert found.share == -0.5
    assert found.is_sure is (found.low is not None) is (found.high is not None) is (days >= 7)


def test_seeds_are_drawn_too() -> None:
    """Where the seeds alone differ, one of them says that it is sure, and many that disagree say that it is not."""
    theirs = [totals(np.full(20, 10.0))]
    better, worse = totals(np.full(20, 5.0)), totals(np.full(20, 15.5))
    assert against([better], theirs).is_sure
    assert not against([better, worse], theirs * 2).is_sure


def test_the_same_draws_come_again_and_serve_all() -> None:
    rng = np.random.default_rng(0)
    one, other = totals(rng.exponential(9, 25) + 1), totals(rng.exponential(9, 25) + 1)
    assert against([one], [other]) == against([one], [other])
    there, back = against([one], [other]), against([other], [one])
    assert there.low is not None
    assert back.high is not None
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1.0)


def test_intervals_of_independent_days_hold_the_truth() -> None:
    """Days that do not hang together, of which 95 of 100 intervals should hold it; widened for few blocks."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(100):
        theirs = rng.exponential(100, 40) + 100
        found = against([totals(theirs * rng.lognormal(-0.2, 0.3, 40))], [totals(theirs)], "log_jct")
        held += found.low <= np.expm1(-0.2) <= found.high
    assert 88 <= held <= 100


@pytest.mark.parametrize("days", [7, 20, 60, 300])
def test_a_p_below_a_twentieth_says_what_the_interval_says(days: int) -> None:
    """Whatever the tail: an interval that leaves out 0 on one side is no wider for what lies on the other."""
    rng = np.random.default_rng(days)
    sure = []
    for power in (1.05, 1.5, 3.0) * 20:
        theirs, mine = 1 + rng.pareto(power, days), (1 + rng.pareto(power, days)) * rng.uniform(0.3, 3)
        found = against([totals(mine)], [totals(theirs)])
        assert found.p is not None
        assert found.is_sure is bool(found.p < 0.05)
        sure.append(found.is_sure)
    assert 5 < sum(sure) < 55


def test_those_below_the_largest_p_that_is_small_enough_for_its_rank_are_discovered() -> None:
    """0.03 is not below 0.05 / 4 or 2/4 of 0.05, but 0.035 is below 3/4 of it; who has no p is not one of the four."""
    found = [PairedDifference(9, 2, 1, 0.5, 2, p) for p in (0.9, 0.035, 0.001, 0.03, None)]
    assert discovered(found) == [False, True, True, True, False]
    assert discovered(found[:1]) == [False]
    assert discovered([]) == []
