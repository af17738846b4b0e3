"""The rhythm of drawn arrivals: what is asked for is drawn, and what was drawn is read back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.traces.arrivals import PHILLY, Arrivals, Bursts, fit, in_sweeps
from perdure.traces.generate import generate

CLUSTER = Cluster.parse("321x2+231x8")
DAY_S = 86_400.0
CALM = replace(PHILLY, narrow=Bursts(4.0, 0.0, 0.0), wide=Bursts(2.0, 0.0, 0.0))  # no bursts: counts are Poisson's


def drawn(arrivals: Arrivals, seed: int = 0, n_jobs: int = 60_000) -> JobTable:
    return generate(n_jobs, CLUSTER, 0.6, np.random.default_rng(seed), failures=False, arrivals=arrivals)


def by_day(table: JobTable) -> np.ndarray:
    return np.bincount((table.submit_s // DAY_S).astype(int))[:-1]


def test_the_weekend_is_as_quiet_as_asked() -> None:
    days = by_day(drawn(replace(CALM, weekend=0.25)))
    free = np.arange(len(days)) % 7 >= 5
    assert days[free].mean() / days[~free].mean() == pytest.approx(0.25, rel=0.1)


def test_the_quietest_hour_is_the_one_asked_for() -> None:
    hours = np.bincount((drawn(replace(CALM, quietest_h=15.0, day_night=5.0)).submit_s % DAY_S // 3600).astype(int))
    assert np.argmin(hours) in (14, 15)
    assert hours.max() / hours.min() == pytest.approx(5.0, rel=0.25)


def test_a_virtual_cluster_has_days_of_its_own_and_keeps_its_share() -> None:
    even, uneven = (drawn(replace(CALM, vc_days=spread), n_jobs=100_000) for spread in (0.0, 1.0))
    largest = even.vc == "vc02"
    assert (uneven.vc == "vc02").mean() == pytest.approx(largest.mean(), rel=0.05)
    spreads = []
    for table in (even, uneven):
        mine = np.bincount((table.submit_s // DAY_S).astype(int)[table.vc == "vc02"])
        spreads.append(mine.std() / mine.mean())
    assert spreads[1] > 3 * spreads[0]


def test_jobs_on_one_gpu_and_on_several_share_the_days_of_their_virtual_cluster() -> None:
    table = drawn(replace(CALM, vc_days=1.5), n_jobs=100_000)
    day = (table.submit_s // DAY_S).astype(int)
    of_vc = table.vc == "vc01"
    narrow, wide = (
        np.bincount(day[of_vc & rows], minlength=day.max() + 1) for rows in (table.gpus == 1, table.gpus > 1)
    )
    assert np.corrcoef(np.log1p(narrow), np.log1p(wide))[0, 1] > 0.6


@given(st.integers(0, 1000), st.integers(1, 5), st.floats(1.0, 20.0))
@settings(deadline=None, max_examples=30)
def test_a_sweep_takes_users_of_the_same_virtual_cluster_who_had_submitted(seed: int, vcs: int, mean: float) -> None:
    rng = np.random.default_rng(seed)
    vc = rng.integers(0, vcs, 300)
    user = vc * 10 + rng.integers(0, 10, 300)
    submit_s = rng.random(300)
    swept = in_sweeps(user, vc, submit_s, mean, rng)
    assert (swept // 10 == vc).all()
    for each in range(vcs):
        order = np.flatnonzero(vc == each)[np.argsort(submit_s[vc == each])]
        runs = np.flatnonzero(np.diff(swept[order], prepend=-1))
        assert (swept[order][runs] == user[order][runs]).all()  # a run begins with the user drawn for its first job


def test_users_submit_as_many_jobs_in_a_row_as_asked() -> None:
    rng = np.random.default_rng(0)
    vc = np.zeros(100_000, np.intp)
    alone = np.arange(100_000)  # no two jobs of one user but for sweeps
    swept = in_sweeps(alone, vc, np.arange(100_000.0), 5.0, rng)
    assert 100_000 / len(np.unique(swept)) == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize(
    "asked",
    [
        CALM,
        replace(CALM, sweep=4.0, weekend=0.4, day_night=6.0, quietest_h=7.0),
        replace(PHILLY, narrow=Bursts(4.0, 1.0, 0.3), wide=Bursts(2.0, 0.5, 0.6)),
    ],
)
def test_what_was_drawn_is_read_back(asked: Arrivals) -> None:
    found = [fit(drawn(asked, seed, 80_000)) for seed in range(3)]

    def mean(of: str) -> float:
        return float(np.mean([getattr(each, of) for each in found]))

    assert mean("day_night") == pytest.approx(asked.day_night, rel=0.15)
    assert mean("quietest_h") == pytest.approx(asked.quietest_h, abs=0.5)
    assert mean("sweep") == pytest.approx(asked.sweep, rel=0.05)
    assert mean("weekend") == pytest.approx(asked.weekend, rel=0.35 if asked.narrow.days else 0.1)
    for kind in ("narrow", "wide"):
        for part in ("slots", "days"):
            read = np.mean([getattr(getattr(each, kind), part) for each in found])
            assert read == pytest.approx(getattr(getattr(asked, kind), part), abs=0.2)


def test_uneven_virtual_clusters_are_read_as_uneven() -> None:
    calm, uneven = (np.mean([fit(drawn(replace(CALM, vc_days=spread), seed)).vc_days for seed in range(3)])
                    for spread in (0.0, 1.0))  # fmt: skip
    assert calm < 0.15
    assert 0.4 < uneven < 1.1  # too small where one of them holds half of the jobs, as said


def test_days_are_those_of_the_calendar() -> None:
    """A trace that begins on a Thursday at noon: whole days are counted from Friday's midnight on."""
    table = drawn(replace(CALM, weekend=0.2))
    later = table.take(np.flatnonzero(table.submit_s >= 3.5 * DAY_S))
    noon = replace(later, submit_s=later.submit_s - 3.5 * DAY_S, began_s=DAY_S / 2)
    assert fit(noon).weekend == pytest.approx(0.2, rel=0.15)
    assert fit(noon).quietest_h == pytest.approx(4.0, abs=0.4)


def test_a_trace_of_a_day_has_no_rhythm_to_read() -> None:
    table = drawn(CALM, n_jobs=1000)
    with pytest.raises(InputError, match="at least 2 days"):
        fit(replace(table, submit_s=table.submit_s / table.submit_s[-1] * DAY_S))
