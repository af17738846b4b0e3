"""Run times drawn from those of jobs alike."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perdure.waits.run_times import ENOUGH, RunTimes


def history() -> RunTimes:
    user = np.array(["mira"] * 20 + ["tom"] * 20)
    share = np.array([0.5] * 20 + [0.25] * 20)
    return RunTimes.of(user, np.full(40, "main"), 1000 * share, np.full(40, 1000.0))


def test_past_jobs_of_the_same_user_tell_as_a_share_of_the_limit() -> None:
    rng = np.random.default_rng(0)
    assert set(history().draw("mira", "main", 2000.0, 0.0, rng, 9)) == {1000.0}
    assert set(history().draw("tom", "main", 2000.0, 0.0, rng, 9)) == {500.0}


def test_a_stranger_is_taken_for_anybody() -> None:
    drawn = history().draw("new", "other", 1000.0, 0.0, np.random.default_rng(0), 400)
    assert set(drawn) == {500.0, 250.0}


def test_a_job_that_has_run_longer_than_some_is_like_the_others() -> None:
    drawn = history().draw("new", "other", 1000.0, 300.0, np.random.default_rng(0), 50)
    assert set(drawn) == {500.0}


def test_fewer_than_enough_tell_nothing_of_their_own() -> None:
    few = ENOUGH - 1
    user = np.array(["mira"] * few + ["tom"] * 50)
    known = RunTimes.of(user, np.full(len(user), "main"), np.where(user == "mira", 1.0, 9.0), np.full(len(user), 10.0))
    assert 9.0 in known.draw("mira", "elsewhere", 10.0, 0.0, np.random.default_rng(0), 50)


@given(elapsed_s=st.floats(0, 5000), walltime_s=st.one_of(st.none(), st.floats(1, 4000)), seed=st.integers(0, 99))
def test_what_is_drawn_is_longer_than_what_has_run(elapsed_s: float, walltime_s: float | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for known in (history(), RunTimes()):
        assert (known.draw("mira", "main", walltime_s, elapsed_s, rng, 7) >= elapsed_s).all()


def test_jobs_that_have_not_begun_are_drawn_as_one_that_has_not() -> None:
    half = RunTimes.of(np.full(20, "mira"), np.full(20, "main"), np.full(20, 300.0), np.full(20, 600.0))
    limits_s = np.array([100.0, 4000.0])
    drawn = half.draw_fresh("mira", "main", limits_s, np.random.default_rng(0), 3)
    assert drawn.tolist() == [[50.0] * 3, [2000.0] * 3]
    unknown = RunTimes().draw_fresh("mira", "main", limits_s, np.random.default_rng(0), 300)
    assert ((unknown > 0) & (unknown <= limits_s[:, None])).all()


def test_those_of_a_user_go_before_those_of_a_partition() -> None:
    """Where few of the user's jobs ran in that partition."""
    user, partition = np.repeat(["ada", "bob"], 20), np.repeat(["far", "main"], 20)
    known = RunTimes.of(user, partition, np.repeat([100.0, 900.0], 20), np.full(40, 1000.0))
    for whose, where, seconds in (("ada", "main", 100.0), ("bob", "far", 900.0), ("eve", "main", 900.0)):
        assert set(known.draw(whose, where, 1000.0, 0.0, np.random.default_rng(0), 50)) == {seconds}


def test_what_is_older_than_the_latest_counts_no_more() -> None:
    run_s = np.r_[np.full(600, 100.0), np.full(500, 900.0)]
    known = RunTimes.of(np.repeat(["ada"], 1100), np.repeat(["main"], 1100), run_s, np.full(1100, 1000.0))
    for whose in ("ada", "eve"):
        assert set(known.draw(whose, "main", 1000.0, 0.0, np.random.default_rng(0), 99)) == {900.0}
        assert set(known.draw(whose, "main", None, 0.0, np.random.default_rng(0), 99)) == {900.0}
