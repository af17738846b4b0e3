"""Figures of several runs: means over seeds, and the file that has a row for each group and day."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.comparison import PolicyComparison
from perdure.simulation.figures_csv import COLUMNS, write_csv
from perdure.simulation.metrics import Metrics, MetricSpread, summary
from perdure.simulation.seed_means import over_seeds
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import Run, SweepCase
from tests.simulation.tables import jobs

CLUSTER = Cluster.parse("2x4")
TABLE = jobs((1, 0, 3600), (4, 0, 7200), (8, 90_000, 60), user=["eve", "bob", "eve"], vc=["a", "b", "b"])


def figures(table: JobTable = TABLE) -> Metrics:
    return summary(table, simulate(table, CLUSTER, "fifo"))


def run_of(metrics: Metrics, policy: str = "fifo", seed: int = 0) -> Run:
    return Run(SweepCase(0, policy, seed=seed), metrics, 0.1, use_by_day=(19_000, (0.25, 0.5)))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1)), min_size=1, max_size=5))
def test_a_mean_over_seeds_is_that_of_its_runs_and_the_interval_holds_it(found: list[tuple[float, float]]) -> None:
    base = figures()
    runs = [
        run_of(replace(base, jct_s=MetricSpread(jct, jct, 2 * jct, 3 * jct, 4 * jct), goodput=good), seed=seed)
        for seed, (jct, good) in enumerate(found)
    ]
    (means,) = over_seeds(runs)
    mean = fmean(jct for jct, _ in found)
    assert [means.jct_s.mean, means.jct_s.p99] == pytest.approx([mean, 4 * mean])
    assert means.goodput == pytest.approx(fmean(good for _, good in found))
    low, high = means.jct_interval_s
    assert low <= mean * (1 + 1e-9)
    assert high >= mean * (1 - 1e-9)
    assert min(jct for jct, _ in found) <= low * (1 + 1e-9)
    assert high <= max(jct for jct, _ in found) * (1 + 1e-9)
    assert (means.case, means.jobs) == (SweepCase(0, "fifo"), 3)


def test_one_seed_and_equal_seeds_leave_no_interval_open() -> None:
    for seeds in (1, 4):
        (means,) = over_seeds([run_of(figures(), seed=seed) for seed in range(seeds)])
        assert list(means.jct_interval_s) == pytest.approx([means.jct_s.mean] * 2)
        assert means.wait_s == figures().wait_s


def test_cases_keep_the_order_of_the_runs_and_counts_are_rounded() -> None:
    base = figures()
    runs = [
        run_of(replace(base, preemptions=1 + seed), name, seed) for seed in (0, 1, 2, 5) for name in ("srtf", "las")
    ]
    found = list(over_seeds(runs))
    assert [each.case.policy for each in found] == ["srtf", "las"]
    assert [each.preemptions for each in found] == [3, 3]
    assert list(over_seeds([])) == []


def rows_of(path: Path, *runs: Run) -> list[dict[str, str]]:
    write_csv(path, PolicyComparison(["t.csv"], [TABLE], runs))
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_file_has_a_row_for_all_jobs_each_group_and_each_day(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "figures.csv", run_of(figures()))
    assert [(row["of"], row["name"]) for row in rows] == [
        ("all jobs", ""), ("virtual cluster", "a"), ("virtual cluster", "b"), ("user", "bob"), ("user", "eve"),
        ("GPUs", "1"), ("GPUs", "2-4"), ("GPUs", "5-8"), ("day", "19000"), ("day", "19001"),
    ]  # fmt: skip
    assert {tuple(row) for row in rows} == {COLUMNS}
    assert {(row["trace"], row["policy"], row["retry"], row["seed"]) for row in rows} == {
        ("t.csv", "fifo", "recorded", "0")
    }


def test_figures_are_those_of_the_run_to_the_last_digit_and_unknown_ones_are_empty(tmp_path: Path) -> None:
    found = figures()
    every, *groups = rows_of(tmp_path / "figures.csv", run_of(found))
    assert float(every["jct_s_p90"]) == found.jct_s.p90
    assert float(every["used"]) == found.utilisation
    assert float(every["makespan_s"]) == found.makespan_s
    for row in groups[:-2]:
        kind = {"virtual cluster": found.groups, "user": found.users, "GPUs": found.sizes}[row["of"]]
        assert (int(row["jobs"]), float(row["gpu_h"])) == (kind[row["name"]].jobs, kind[row["name"]].gpu_h)
        assert float(row["rho_mean"]) == kind[row["name"]].rho.mean
        assert (row["used"], row["makespan_s"]) == ("", "")
    assert [(row["used"], row["jobs"]) for row in groups[-2:]] == [("0.25", ""), ("0.5", "")]


def test_groups_of_one_kind_add_up_to_all_jobs(tmp_path: Path) -> None:
    every, *groups = rows_of(tmp_path / "figures.csv", run_of(figures()))
    for kind in ("virtual cluster", "user", "GPUs"):
        mine = [row for row in groups if row["of"] == kind]
        assert sum(int(row["jobs"]) for row in mine) == int(every["jobs"])
        jct_s = sum(int(row["jobs"]) * float(row["jct_s_mean"]) for row in mine)
        assert jct_s == pytest.approx(int(every["jobs"]) * float(every["jct_s_mean"]))
