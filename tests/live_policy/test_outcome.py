"""What came of a policy: means over jobs that have ended, and intervals only where these are enough."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.live_policy.outcome import LEAST_JOBS, JobLife, outcome_of


def lives(count: int, wait_s: float = 10.0, run_s: float = 5.0) -> list[JobLife]:
    return [JobLife(float(at), at + wait_s, at + wait_s + run_s) for at in range(count)]


def test_jobs_that_are_not_over_count_as_come_alone() -> None:
    found = outcome_of([*lives(2), JobLife(9.0, None, None), JobLife(9.0, 10.0, None)], np.random.default_rng(0))
    assert (found.came, found.over, found.is_enough) == (4, 2, False)
    assert found.wait_s is not None
    assert found.jct_s is not None
    assert (found.wait_s.mean, found.jct_s.mean, found.wait_s.low) == (10.0, 15.0, None)


def test_without_jobs_nothing_is_told() -> None:
    found = outcome_of([], np.random.default_rng(0))
    assert (found.came, found.over, found.wait_s) == (0, 0, None)


def test_enough_jobs_have_an_interval_around_the_mean() -> None:
    rng = np.random.default_rng(1)
    drawn = [JobLife(float(at), at + w, at + w + 1.0) for at, w in enumerate(rng.exponential(100.0, 400))]
    found = outcome_of(drawn, np.random.default_rng(0)).wait_s
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < 100.0 < found.high
    assert found.low < found.mean < found.high
    assert outcome_of(lives(LEAST_JOBS), np.random.default_rng(0)).is_enough


@pytest.mark.parametrize("count", [LEAST_JOBS, 47, 500])
def test_jobs_that_wait_alike_have_an_interval_of_no_width(count: int) -> None:
    found = outcome_of(lives(count), np.random.default_rng(0)).wait_s
    assert found is not None
    assert (found.low, found.high) == (10.0, 10.0)


def test_jobs_are_taken_in_the_order_in_which_they_came() -> None:
    drawn = [
        JobLife(float(at), at + w, at + w + 1.0) for at, w in enumerate(np.random.default_rng(1).exponential(9.0, 99))
    ]
    assert outcome_of(drawn[::-1], np.random.default_rng(0)) == outcome_of(drawn, np.random.default_rng(0))


def test_a_job_that_ended_before_it_ran_counts_as_come_alone() -> None:
    found = outcome_of([*lives(2), JobLife(9.0, None, 10.0)], np.random.default_rng(0))
    assert (found.came, found.over) == (3, 2)
