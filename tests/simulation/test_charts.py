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
from perdure.simulation.verdict import judge
from tests.simulation.tables import jobs

figures = pytest.importorskip("matplotlib.figure", reason="Matplotlib is not installed")
CLUSTER = Cluster.parse("1x8")
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
