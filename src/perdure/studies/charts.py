"""Pictures of the two availability studies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.blame.charts import MARK, Draw
from perdure.studies.colocation import ColocationResult, Days
from perdure.studies.tor import TorStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NEAR, _FAR = "#0b62c4", "#c2410c"


def draw_tor(study: TorStudy) -> Draw:
    """The share of time that a ToR is down against the share that fails a month: all soft, this mix, all hard."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        failing = np.geomspace(1e-5, 1e-1, 60)
        for soft, colour in ((1.0, "#15803d"), (study.soft_share, _NEAR), (0.0, _FAR)):
            repair = soft * study.soft_min + (1 - soft) * study.hard_min
            down = failing * repair / (30 * 24 * 60)
            axes.loglog(failing, down, color=colour, label=f"{soft:.0%} soft, mean repair {repair:.0f} min")
        for nines in range(3, 8):
            axes.axhline(10.0**-nines, color="#b9c2c9", linewidth=0.8, zorder=0)
            axes.text(1.02e-5, 10.0**-nines * 1.1, _availability(10.0**-nines), fontsize=7.5, color="#55616b")
        if study.failing_share and study.unavailability:
            axes.plot(study.failing_share, study.unavailability, "o", color=MARK)
            axes.annotate(
                _availability(study.unavailability), (study.failing_share, study.unavailability),
                xytext=(8, -12), textcoords="offset points", color=MARK, fontweight="bold",
            )  # fmt: skip
        _plain(axes, "ToRs that fail in a month, as a share", "share of time down")
        axes.legend(frameon=False, loc="lower right")

    return draw


def _availability(down: float) -> str:
    """With a digit beyond its nines.

    >>> _availability(6.94e-7)
    '99.99993 %'
    """
    return f"{100 * (1 - down):.{max(0, int(np.ceil(-np.log10(down))) - 2)}f} %"


def draw_colocation(days: Days, found: ColocationResult) -> Draw:
    """The daily failure rates of both distances, and the excess of the far one with its 95 % interval."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=[3, 1])
        for label, units, failures, colour in (
            (f"{days.near_hops} hops, {found.near_share:.0%} of units", days.near_units, days.near_failures, _NEAR),
            (f"{days.far_hops} hops, {found.far_share:.0%} of units", days.far_units, days.far_failures, _FAR),
        ):
            left.plot(100 * failures / np.maximum(units, 1), color=colour, linewidth=1.1, label=label)
        _plain(left, "day", "failed, % of units")
        left.set_ylim(bottom=0)
        left.legend(frameon=False, fontsize=8)
        low, middle, high = (100 * each for each in (found.excess_low, found.excess, found.excess_high))
        if np.isfinite([low, middle, high]).all():
            right.errorbar([0], [middle], yerr=[[middle - low], [high - middle]], fmt="o", color=_FAR, capsize=5)
        right.axhline(0, color="#b9c2c9", linewidth=0.8)
        right.set_xticks([])
        right.set_xlim(-1, 1)
        _plain(right, f"p = {found.p:.2g}", "more failures at the far ones, %")

    return draw


def _plain(axes: Axes, x: str, y: str) -> None:
    """Name the axes and take the frame away where it holds no data."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
