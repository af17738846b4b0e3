"""Who may come, by a site's past."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.model.table import JobTable
from perdure.waits.past import DAY_S, Past

MONDAY_S = 4 * DAY_S  # the first Monday of the epoch


def past(days: int, per_day: int = 24) -> Past:
    """So many whole days up to a Monday, with a job each hour: of user w on Saturday and Sunday, of user d else."""
    n = days * per_day
    submit = MONDAY_S + 70 * DAY_S - days * DAY_S + np.arange(n) * DAY_S / per_day
    weekend = ((submit // DAY_S + 3) % 7) >= 5
    table = JobTable(
        job_id=np.arange(n).astype(str),
        submit_s=submit - submit[0],
        gpus=np.ones(n, np.int64),
        duration_s=np.full(n, 60.0),
        user=np.where(weekend, "w", "d"),
        partition=np.where(np.arange(n) % 2 == 0, "even", "odd"),
        walltime_s=np.full(n, 600.0),
        start_s=submit - submit[0] + 5,
        began_s=float(submit[0]),
    )
    return Past.of(table, MONDAY_S + 70 * DAY_S)


NOW_S = MONDAY_S + 70 * DAY_S  # a Monday, 0:00


def test_as_many_come_in_a_day_as_came_in_one() -> None:
    coming = past(14).arrivals(NOW_S, DAY_S, np.random.default_rng(0))
    assert len(coming) == 24
    assert (coming.submit_s >= NOW_S).all()
    assert (coming.submit_s <= NOW_S + DAY_S).all()
    assert (np.diff(coming.submit_s) >= 0).all()
    assert np.isnan(coming.start_s).all()


@pytest.mark.parametrize(("hours", "come"), [(6, 7), (30, 31), (36, 37)])
def test_nobody_comes_after_the_horizon(hours: int, come: int) -> None:
    assert len(past(14).arrivals(NOW_S, hours * 3600.0, np.random.default_rng(0))) == come


def test_a_working_day_stands_for_a_working_day_and_a_weekend_for_a_weekend() -> None:
    coming = past(14).arrivals(NOW_S, 7 * DAY_S, np.random.default_rng(0))
    day = (coming.submit_s - NOW_S) // DAY_S
    assert set(coming.user[day < 5]) == {"d"}
    assert set(coming.user[(day >= 5) & (day < 7)]) == {"w"}


def test_jobs_come_at_the_hours_at_which_they_came() -> None:
    coming = past(14).arrivals(NOW_S + 1800, DAY_S, np.random.default_rng(1))
    assert set((coming.submit_s % 3600).round()) == {0.0}


def test_only_those_of_some_partitions_may_be_asked_for() -> None:
    coming = past(14).only_in(("odd",)).arrivals(NOW_S, DAY_S, np.random.default_rng(0))
    assert set(coming.partition) == {"odd"}
    assert len(coming) == 12


def test_a_partition_without_jobs_has_a_past_as_long_as_the_others() -> None:
    nobody = past(14).only_in(("new",))
    assert (len(nobody.jobs), nobody.days, nobody.since_s) == (0, 14, past(14).since_s)
    assert len(nobody.arrivals(NOW_S, DAY_S, np.random.default_rng(0))) == 0


def test_a_past_of_hours_comes_again_and_again_at_its_own_rate() -> None:
    hours = past(1)
    short = Past(hours.jobs.take(np.arange(6)), float(hours.jobs.submit_s[0]) + 6 * 3600, hours.run_times)
    coming = short.arrivals(NOW_S, DAY_S, np.random.default_rng(0))
    assert short.days == 0
    assert len(coming) == 24
    assert (np.diff(coming.submit_s) >= 0).all()


def test_without_a_past_nobody_comes() -> None:
    assert Past().days == 0
    assert len(Past().arrivals(NOW_S, DAY_S, np.random.default_rng(0))) == 0


def test_run_times_are_learnt_from_the_same_jobs() -> None:
    drawn = past(14).run_times.draw("d", "even", 1200.0, 0.0, np.random.default_rng(0), 5)
    assert drawn == pytest.approx(120.0)
