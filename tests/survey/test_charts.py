"""Pictures of a failure study show the reasons that cost most, the costliest on top."""

import numpy as np
import pytest

from perdure.survey import charts
from perdure.survey.tally import FailedAttempt, tally
from perdure.triage.verdict import Label

figure = pytest.importorskip("matplotlib.figure")

FAILED = [FailedAttempt(str(n), "ada", n, 3600.0 * n, f"reason{n:02}", Label.UNSURE) for n in range(1, 21)]


def test_the_costliest_reasons_are_drawn_from_the_top_down() -> None:
    (axes,) = charts._lost(figure.Figure(), tally(FAILED)).axes
    from_below = [label.get_text() for label in axes.get_yticklabels()]
    assert from_below == [f"reason{n:02}" for n in range(20 - charts.MAX_BARS + 1, 21)]
    assert [bar.get_width() for bar in axes.containers[0]] == [n * n for n in range(20 - charts.MAX_BARS + 1, 21)]


def test_a_curve_of_run_times_ends_at_one_at_its_longest() -> None:
    failed = [FailedAttempt("1", "ada", 1, ran_s, "net", Label.UNSURE) for ran_s in (30.0, None, 0.5, 600.0)]
    (axes,) = charts._run_times(figure.Figure(), tally(failed), failed).axes
    (curve,) = axes.lines
    assert np.asarray(curve.get_xdata()).tolist() == [1.0, 30.0, 600.0]
    assert np.asarray(curve.get_ydata()).tolist() == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert curve.get_label() == "net (4)"
