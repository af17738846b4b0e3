"""Pictures at their edges: one job, equal runs, and what a reader sees at each end of an axis."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation import charts
from perdure.simulation.by_day import DayTotals, Group
from perdure.simulation.charts import DARK, LIGHT, MAX_RUNS, PICTURES, Shown, crowded_jobs, unit_of, waits_by_size
from perdure.simulation.fairness import rho
from perdure.simulation.groups import SIZES, GroupKind
from perdure.simulation.simulate import simulate
from perdure.simulation.use import stretches, use_over_time
from perdure.simulation.verdict import judge
from tests.simulation.tables import jobs

figures = pytest.importorskip("matplotlib.figure", reason="Matplotlib is not installed")
CLUSTER = Cluster.parse("1x8")
UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}
ONE = jobs((1, 0, 10))
CROWD = jobs(*((1 + i % 8, 10 * i, 50 + 7 * i) for i in range(30)))


def shown(table: JobTable, *policies: str) -> list[Shown]:
    return [Shown(name, table, simulate(table, CLUSTER, name)) for name in policies]


def drawn(name: str, runs: list[Shown]) -> list[Any]:
    figure = figures.Figure()
    PICTURES[name](figure, runs, LIGHT)
    return list(figure.axes)


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("table", [ONE, jobs((8, 5, 0)), jobs((8, 0, 9), (8, 0, 9))], ids=["one", "empty", "two"])
def test_few_jobs_are_drawn_whatever_they_run(name: str, table: JobTable) -> None:
    assert len(drawn(name, shown(table, "fifo"))) == 1
    assert len(drawn(name, shown(table, "fifo", "srtf"))) == (1 if name in ("waits", "rho") else 2)


def test_equal_runs_lie_on_the_line_they_are_compared_with() -> None:
    runs = shown(CROWD, "fifo", "fifo")
    other = drawn("completion", runs)[1]
    assert np.array_equal(other.lines[0].get_ydata(), np.ones(1001))
    assert (np.array(drawn("use", runs)[1].patches[0].get_data().values) == 0).all()
    heights = [bar.get_height() for bar in drawn("waits", runs)[0].patches]
    assert heights[: len(SIZES)] == heights[len(SIZES) :]


def test_bars_are_the_mean_waits_in_the_unit_of_the_axis() -> None:
    run = shown(CROWD, "fifo")
    (axes,) = drawn("waits", run)
    waits = np.nan_to_num(waits_by_size(CROWD, run[0].result))
    unit_s, unit = unit_of(float(waits.max()))
    assert axes.get_ylabel() == f"mean wait, {unit}"
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(waits / unit_s)


def drawn_of(name: str, axes: list[Any]) -> dict[str, Any]:
    """What a picture shows under the name of each run."""
    if name == "waits":
        return {bars.get_label(): [bar.get_height() for bar in bars] for bars in axes[0].containers}
    if name == "use":
        return {axes[0].get_title(): axes[0].patches[0].get_data().values} | {
            step.get_label(): step.get_data().values for step in axes[1].patches
        }
    if name == "gantt":
        return {one.get_title(): sorted(bar.get_width() for bar in one.patches) for one in axes}
    if name == "completion":
        return {axes[0].get_title(): axes[0].lines[0].get_xdata()} | {
            line.get_label(): line.get_ydata() for line in axes[1].lines if not line.get_label().startswith("_")
        }
    return {line.get_label(): line.get_xdata() for line in axes[0].lines if not line.get_label().startswith("_")}


def expected_of(name: str, run: Shown, first: Shown, axes: list[Any]) -> Any:
    """The same, from the schedule of the run."""
    places, alone = np.linspace(0, 1, 1001), run is first
    if name == "waits":
        return np.nan_to_num(waits_by_size(run.table, run.result)) / UNITS[axes[0].get_ylabel().split(", ")[1]]
    if name == "use":
        edges = axes[0].patches[0].get_data().edges * UNITS[axes[1].get_xlabel().split()[0]]
        share, of_first = (use_over_time(each.table, each.result, edges) for each in (run, first))
        return share if alone else share - of_first
    if name == "gantt":
        job, start_s, end_s, _ = stretches(run.table.gpus, run.result)
        mine = np.isin(job, crowded_jobs(first.table, first.result)) & (end_s > start_s)
        return np.sort(end_s[mine] - start_s[mine]) / UNITS[axes[0].get_xlabel()]
    if name == "rho":
        return np.quantile(rho(run.table, run.result), places)
    jct_s, of_first = (np.quantile(each.result.end_s - each.table.submit_s, places) for each in (run, first))
    return jct_s if alone else jct_s / of_first


@pytest.mark.parametrize("name", PICTURES)
def test_what_is_drawn_under_a_policy_is_its_own_schedule(name: str) -> None:
    runs = shown(CROWD, "fifo", "fewest-gpus", "srtf")
    axes = drawn(name, runs)
    found = drawn_of(name, axes)
    assert list(found) == [run.label for run in runs]
    for run in runs:
        assert found[run.label] == pytest.approx(expected_of(name, run, runs[0], axes)), run.label
    wrong = expected_of(name, runs[1], runs[0], axes)
    assert found["srtf"] != pytest.approx(wrong)  # so that a picture of another one would be noticed


def test_the_recorded_waits_are_drawn_beside_those_of_each_run() -> None:
    table = replace(CROWD, start_s=CROWD.submit_s + 500)
    runs = shown(table, "fifo", "srtf")
    figure = figures.Figure()
    charts._recorded(figure, runs, LIGHT)
    found = {line.get_label(): line.get_xdata() for line in figure.axes[0].lines}
    waits = {run.label: run.result.start_s - table.submit_s for run in runs} | {"as recorded": np.full(len(table), 500)}
    assert list(found) == list(waits)
    for label, wait_s in waits.items():
        assert found[label] == pytest.approx(np.maximum(np.quantile(wait_s, np.linspace(0, 1, 1001)), 1.0))


def test_a_gantt_chart_has_a_bar_for_each_stretch_of_the_jobs_that_it_shows() -> None:
    run = shown(CROWD, "srtf")[0]
    run = replace(run, result=simulate(CROWD, CLUSTER, "srtf", spans=True))
    spans, rows = run.result.spans, crowded_jobs(CROWD, run.result)
    assert spans is not None
    (axes,) = drawn("gantt", [run])
    assert len(axes.patches) == np.isin(spans.job, rows).sum() > len(rows)  # some are preempted
    width = sum(bar.get_width() for bar in axes.patches)
    unit_s = unit_of(float(np.quantile(run.result.end_s[rows], 0.8)) - float(CROWD.submit_s[rows[0]]))[0]
    assert width * unit_s == pytest.approx(float((spans.end_s - spans.start_s).sum()))


@pytest.mark.parametrize(
    ("longest_s", "unit"),
    [(0, "seconds"), (119, "seconds"), (120, "minutes"), (7199, "minutes"), (7200, "hours"), (172_800, "days")],
)
def test_an_axis_has_the_largest_unit_of_which_it_shows_two(longest_s: float, unit: str) -> None:
    assert unit_of(longest_s)[1] == unit


def test_crowded_jobs_are_rows_in_order_and_no_more_than_fit() -> None:
    for table in (ONE, CROWD, jobs(*((1, i, 5) for i in range(90)))):
        rows = crowded_jobs(table, simulate(table, CLUSTER, "fifo"))
        assert len(rows) == min(40, len(table))
        assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_each_run_that_a_picture_can_tell_apart_has_a_colour_of_its_own(theme: Any) -> None:
    assert len({*theme.runs, theme.page, theme.words, theme.lines}) == MAX_RUNS + 3


def test_rho_is_drawn_as_a_share_of_the_jobs() -> None:
    run = shown(CROWD, "fifo")
    (axes,) = drawn("rho", run)
    at = rho(CROWD, run[0].result)
    curve = axes.lines[0]
    assert (curve.get_xdata()[0], curve.get_xdata()[-1]) == pytest.approx((at.min(), at.max()))
    assert (curve.get_ydata()[0], curve.get_ydata()[-1]) == (0, 1)
    assert np.interp(0.5, curve.get_ydata(), curve.get_xdata()) == pytest.approx(np.median(at))


@pytest.mark.parametrize("name", PICTURES)
def test_marks_of_axes_are_words_and_numbers(name: str) -> None:
    """Matplotlib writes marks of logarithmic axes as formulas, and no text of a picture is read as one."""
    runs = shown(CROWD, "fifo", "srtf")
    figure = figures.Figure()
    PICTURES[name](figure, runs, LIGHT)
    figure.canvas.draw()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            marks = [*axis.get_majorticklabels(), *axis.get_minorticklabels()]
            texts = [mark.get_text() for mark in marks if mark.get_text()]
            assert not [text for text in texts if set(text) & set("$\\{}")], texts
            assert len(texts) != 1, texts  # none where a neighbour has them


def pixels(png: bytes) -> set[tuple[int, ...]]:
    image = pytest.importorskip("matplotlib.image").imread(io.BytesIO(png))
    return set(map(tuple, np.rint(image[:, :, :3].reshape(-1, 3) * 255).astype(int).tolist()))


@pytest.mark.parametrize(("jct_s", "colour", "other"), [(50.0, 2, 1), (150.0, 1, 2)])
def test_who_loses_is_drawn_orange_and_who_gains_green(
    monkeypatch: pytest.MonkeyPatch, jct_s: float, colour: int, other: int
) -> None:
    """One user, on ten days, with the first policy's 100 s and the other's."""
    monkeypatch.setattr(charts, "PICTURES", {})
    groups: tuple[Group, ...] = ((None, ""), (GroupKind.USER, "eve"))
    totals = [DayTotals(groups, 0, np.ones((2, 10), np.int64), np.full((4, 2, 10), each)) for each in (100.0, jct_s)]
    standing = judge(["fifo", "las"], [[each] for each in totals]).standings[1]
    seen = pixels(charts.draw(shown(ONE, "fifo"), LIGHT, standing)["changes"])
    rgb = [tuple(bytes.fromhex(LIGHT.runs[place][1:])) for place in (colour, other)]
    assert [each in seen for each in rgb] == [True, False]


def test_who_loses_is_drawn_however_few_jobs_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 users the one with the fewest jobs."""
    monkeypatch.setattr(charts, "PICTURES", {})
    groups: tuple[Group, ...] = ((None, ""), *((GroupKind.USER, f"u{n}") for n in range(40)))
    many = np.array([400, *[10] * 39, 1])[:, None] * np.ones((1, 10), int)
    jct_s = np.full((2, 41, 10), 100.0)
    jct_s[1, :40] = 50.0
    jct_s[1, 40] = 200.0
    totals = [DayTotals(groups, 0, many, np.repeat((many * each)[None], 4, axis=0)) for each in jct_s]
    standing = judge(["fifo", "las"], [[each] for each in totals]).standings[1]
    assert [name for _, name in standing.losers] == ["u39"]
    seen = pixels(charts.draw(shown(ONE, "fifo"), LIGHT, standing)["changes"])
    assert tuple(bytes.fromhex(LIGHT.runs[1][1:])) in seen
