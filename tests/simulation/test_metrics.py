"""The figures of a simulation, by hand and as laws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable, TableEnding
from perdure.simulation.fairness import rho
from perdure.simulation.metrics import MetricSpread, interval, summary
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs, tables, with_attempts

ONE = Cluster.parse("1x1")


def tried(*lists: list[tuple[float, bool]], **columns: Any) -> JobTable:
    """Jobs on one GPU, all submitted at 0."""
    rows = [(1, 0, sum(d for d, _ in attempts)) for attempts in lists]
    return jobs(*rows, attempts=with_attempts(jobs(*rows), lists), **columns)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ((), (0, 0, 0, 0, 0)),
        ((7,), (7, 7, 7, 7, 7)),
        (range(1, 11), (5.5, 5, 9, 10, 10)),
        (range(200, 0, -1), (100.5, 100, 180, 190, 198)),
    ],
)
def test_a_quantile_is_the_value_in_its_place(values: Sequence[int], wanted: tuple[float, int, int, int, int]) -> None:
    found = MetricSpread.of(np.array(values, np.float64))
    assert (found.mean, found.p50, found.p90, found.p95, found.p99) == wanted


@given(st.integers(1, 400), st.sampled_from([50, 90, 95, 99]))
def test_quantiles_follow_the_convention_of_the_golden_files(n: int, percent: Any) -> None:
    place = next(k for k in range(1, n + 1) if 100 * k >= percent * n) - 1
    assert getattr(MetricSpread.of(np.arange(n, dtype=float)), f"p{percent}") == place


def test_figures_of_three_jobs_on_one_gpu() -> None:
    table = jobs((1, 0, 3600), (1, 0, 7200), (1, 3600, 3600), vc=["a", "b", "b"])
    found = summary(table, simulate(table, ONE, "fifo"))
    assert (found.jobs, found.finished, found.success_rate) == (3, 3, 1.0)
    assert (found.jct_s.mean, found.wait_s.p50) == (8400.0, 3600.0)
    assert (found.makespan_s, found.utilisation, found.goodput, found.wasted_gpu_h) == (14400.0, 1.0, 1.0, 0.0)
    assert {name: group.jobs for name, group in found.groups.items()} == {"a": 1, "b": 2}
    assert found.groups["b"].gpu_h == 3.0
    assert found.groups["b"].wait_s.mean == 5400.0


def test_every_figure_of_two_virtual_clusters_by_hand() -> None:
    """On 4 GPUs, FIFO. Hours:

    a1 wants 2 GPUs at 0, fails after 1 and passes after 2 more; a2 wants 4 GPUs at 0, and has them after a1's first
    try, from 1 to 2; a1 goes on from 2 to 4. b1 wants 2 GPUs at 3 for 1 and starts at once; b2 wants 4 at 3, has them
    from 4 to 6, and its owner kills it.
    """
    hour = 3600.0
    lists = [[(hour, False), (2 * hour, True)], [(hour, True)], [(hour, True)], [(2 * hour, False)]]
    rows = (2, 0, 3 * hour), (4, 0, hour), (2, 3 * hour, hour), (4, 3 * hour, 2 * hour)
    endings = np.array([TableEnding.PASSED, TableEnding.PASSED, TableEnding.PASSED, TableEnding.KILLED], np.int8)
    table = jobs(*rows, vc=list("aabb"), ending=endings, attempts=with_attempts(jobs(*rows), lists))
    found = summary(table, simulate(table, Cluster.parse("1x4"), "fifo"), ["oom", "", "", "", "killed"])
    assert found.jct_s == MetricSpread(10 / 4 * hour, 2 * hour, 4 * hour, 4 * hour, 4 * hour)  # 4, 2, 1 and 3
    assert found.wait_s == MetricSpread(0.5 * hour, 0.0, hour, hour, hour)  # 0, 1, 0 and 1
    assert (found.makespan_s, found.utilisation) == (6 * hour, 20 / 24)
    assert (found.goodput, found.wasted_gpu_h, found.killed_gpu_h) == (10 / 20, 2.0, 8.0)
    assert (found.wasted_gpu_h_by_cause, found.success_rate) == ({"oom": 2.0}, 0.75)
    a, b = found.groups["a"], found.groups["b"]
    assert (a.jobs, a.gpu_h, a.wasted_gpu_h, a.goodput, a.success_rate) == (2, 10.0, 2.0, 0.8, 1.0)
    assert (b.jobs, b.gpu_h, b.wasted_gpu_h, b.goodput, b.success_rate) == (2, 10.0, 0.0, 0.2, 0.5)
    assert (a.jct_s.mean, b.jct_s.mean, a.wait_s.mean, b.wait_s.mean) == (3 * hour, 2 * hour, hour / 2, hour / 2)
    # There are a1 from 0 to 4, a2 to 2, b1 from 3 to 4, b2 from 3 to 6: in the mean, while a1 is there, 2; while a2 is,
    # 2; while b1 is, 3; while b2 is, 5/3. On 4 GPUs over so many, a1 runs as fast as it can: 2 GPUs of 2.
    rhos = [4 / 3, 2 / (1 * 2), 1 / (1 * 1.5), 3 / (2 * 5 / 3)]
    assert found.rho.mean == pytest.approx(np.mean(rhos))
    assert a.rho.mean == pytest.approx(np.mean(rhos[:2]))
    assert b.rho.p99 == pytest.approx(max(rhos[2:]))


def test_slowdown_preemptions_and_fairness_of_users_by_hand() -> None:
    """srtf on one GPU: eve's job of 100 s is preempted at 10 by bob's of 5 s, and at 20 by his of 2 s."""
    table = jobs((1, 0, 100), (1, 10, 5), (1, 20, 2), user=["eve", "bob", "bob"])
    found = summary(table, simulate(table, ONE, "srtf"))
    assert (found.preemptions, found.most_preempted) == (2, 2)
    assert found.slowdown.p99 == 107 / 100
    assert found.users["bob"].slowdown.mean == 1.0  # he never waited; runs below 10 s count as 10 s
    assert (found.users["eve"].jobs, found.sizes["1"].jobs) == (1, 3)
    inverse = np.array([1 / found.users[name].rho.mean for name in ("eve", "bob")])
    assert found.jain_users == pytest.approx(inverse.sum() ** 2 / (2 * (inverse**2).sum()))
    assert found.jain_groups == 1.0  # there is but one


@given(tables(), st.sampled_from(["fifo", "srtf", "las-2d"]))
@settings(max_examples=30, deadline=None)
def test_groups_add_up_to_all_jobs_whatever_they_have_in_common(table: JobTable, policy: str) -> None:
    found = summary(table, simulate(table, Cluster.parse("1x8"), policy))
    for groups in (found.groups, found.users, found.sizes):
        assert sum(group.jobs for group in groups.values()) == found.jobs
        assert sum(group.jobs * group.slowdown.mean for group in groups.values()) == pytest.approx(
            found.jobs * found.slowdown.mean
        )
        assert sum(group.gpu_h for group in groups.values()) == pytest.approx(
            float(table.gpus @ table.duration_s) / 3600
        )
    assert found.slowdown.p50 >= 1.0


def test_waste_is_told_by_cause_and_killed_jobs_are_no_waste() -> None:
    endings = np.array([TableEnding.PASSED, TableEnding.FAILED, TableEnding.KILLED], np.int8)
    table = tried([(3600, False), (3600, True)], [(7200, False)], [(3600, False), (7200, False)], ending=endings)
    found = summary(table, simulate(table, ONE, "fifo"), ["link down", "", "syntax error", "link down", "killed"])
    assert found.wasted_gpu_h_by_cause == {"link down": 2.0, "syntax error": 2.0}
    assert (found.wasted_gpu_h, found.killed_gpu_h, found.goodput) == (4.0, 2.0, 1 / 7)
    assert found.success_rate == pytest.approx(1 / 3)


def test_a_killed_job_that_is_stopped_before_is_waste() -> None:
    table = tried([(3600, False), (7200, False)], ending=np.array([TableEnding.KILLED], np.int8))
    found = summary(table, simulate(table, ONE, "fifo", retry=lambda failed: None))
    assert (found.wasted_gpu_h, found.killed_gpu_h) == (1.0, 0.0)


def test_a_job_alone_has_a_rho_of_one_and_two_at_once_share() -> None:
    alone = jobs((1, 5, 100))
    assert rho(alone, simulate(alone, ONE, "fifo")).tolist() == [1.0]
    assert rho(alone, simulate(alone, Cluster.parse("1x4"), "fifo")).tolist() == [1.0]  # no faster on more than it asks
    both = jobs((1, 0, 100), (1, 0, 100))
    # The first ends in half the time it would take on half a GPU, but for half of its due: N is 2 until then.
    assert rho(both, simulate(both, ONE, "fifo")).tolist() == [0.5, pytest.approx(200 / (100 * 1.5))]


def test_a_job_that_never_ran_has_no_rho() -> None:
    table = jobs((1, 0, 0), (1, 0, 10))
    assert np.isnan(rho(table, simulate(table, ONE, "fifo"))).tolist() == [True, False]


def test_no_jobs_have_figures_of_zero() -> None:
    empty = jobs()
    found = summary(empty, simulate(empty, ONE, "fifo"))
    assert json.loads(json.dumps(found.to_json()))["jct_s"] == dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), 0)


def test_the_report_has_exactly_these_figures() -> None:
    table = jobs((1, 0, 1))
    found = summary(table, simulate(table, ONE, "fifo"))
    assert list(found.to_json()) == [
        "jobs", "finished", "jct_s", "wait_s", "makespan_s", "utilisation", "goodput", "wasted_gpu_h", "success_rate",
        "events",
    ]  # fmt: skip
    assert json.loads(json.dumps(found.details()))["groups"][""]["jobs"] == 1


@settings(deadline=None, max_examples=40)
@given(tables(attempts=True), st.sampled_from(["fifo", "srtf", "las-2d", "philly"]))
def test_gpu_time_is_either_good_or_wasted_or_killed(table: JobTable, policy: str) -> None:
    result = simulate(table, Cluster.parse("2x4"), policy)
    found = summary(table, result)
    good = found.goodput * result.busy_gpu_s / 3600
    assert good + found.wasted_gpu_h + found.killed_gpu_h == pytest.approx(result.busy_gpu_s / 3600)
    assert sum(group.wasted_gpu_h for group in found.groups.values()) == pytest.approx(found.wasted_gpu_h)
    assert found.jct_s.p50 <= found.jct_s.p90 <= found.jct_s.p99


def test_an_interval_holds_the_mean_and_narrows_with_seeds() -> None:
    rng = np.random.default_rng(1)
    few, many = rng.normal(10, 2, 5), rng.normal(10, 2, 200)
    low, high = interval(few.tolist(), rng)
    assert low <= few.mean() <= high
    narrow = interval(many.tolist(), rng)
    assert narrow[1] - narrow[0] < high - low
    assert interval([3.0], rng) == (3.0, 3.0)
    with pytest.raises(ValueError, match="no values"):
        interval([], rng)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_is_as_wide_as_the_normal_law_says(level: float) -> None:
    """Of many values the bootstrap mean is normal, and spread as the values over the root of their number."""
    values = np.random.default_rng(3).exponential(size=4000)
    low, high = interval(values.tolist(), np.random.default_rng(4), level, draws=20_000)
    half = {0.5: 0.6745, 0.95: 1.96}[level] * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.05 * half)


def test_the_interval_of_two_values_by_hand() -> None:
    """Drawn with return, both are the lower one in a quarter of the draws, and both the higher in another."""
    assert interval([1.0, 2.0], np.random.default_rng(0)) == (1.0, 2.0)
    assert interval([1.0, 2.0], np.random.default_rng(0), level=0.4) == (1.5, 1.5)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    covers = [low <= 0 <= high for low, high in (interval(rng.normal(size=30).tolist(), rng) for _ in range(200))]
    assert 0.88 <= np.mean(covers) <= 0.99
