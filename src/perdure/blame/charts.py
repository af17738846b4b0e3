"""Pictures of localisation: the grid of failure rates."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from perdure.blame.grid import Grid
from perdure.errors import MissingExtra
from perdure.installation import to_install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format = Literal["png", "svg"]
FORMATS: tuple[Format, ...] = ("png", "svg")
MARK = "#b3202f"
_LEAST_RATE = 1e-4  # of the scale of colours, which is logarithmic: a gray failure must be seen next to an outage
_MOST_NAMED = 40  # rows or columns whose names all have room
_DPI = 130
Draw = Callable[["Figure"], None]


def picture(draw: Draw, form: Format, size: tuple[float, float] = (8.0, 4.5)) -> bytes:
    """Draw into a file of 8 by 4.5 inches at 130 dpi, unless told otherwise, and return its bytes.

    The bytes are the same for the same drawing: no date, no version, a fixed salt for the ids of SVG. Raises
    `MissingExtra` without Matplotlib, which is imported here and not with the module.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as err:
        raise MissingExtra("pictures", "Matplotlib is not installed", to_install("sim")) from err
    out = io.BytesIO()
    with rc_context({"svg.hashsalt": "perdure", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(out, format=form, dpi=_DPI, metadata={"Date": None} if form == "svg" else {"Software": None})
    return out.getvalue()


def draw_grid(grid: Grid, names: Sequence[str], culprits: Collection[int]) -> Draw:
    """The failure rate of every pair as its colour, in logarithms from 0.01 %: gray failures show next to outages.

    `names` are by column of the window; culprits (columns of the window) are framed and named, whatever room there is.
    Pairs without units stay white.
    """

    def draw(figure: Figure) -> None:
        from matplotlib.colors import LogNorm
        from matplotlib.patches import Rectangle

        axes = figure.add_subplot()
        axes.set_facecolor("#ffffff")
        shown = np.where(np.isnan(grid.rate), np.nan, np.maximum(grid.rate, _LEAST_RATE))
        image = axes.imshow(
            shown, cmap="YlOrRd", norm=LogNorm(_LEAST_RATE, 1), aspect="auto", interpolation="nearest"
        )  # fmt: skip
        rows, columns = grid.rows.tolist(), grid.columns.tolist()
        for place in sorted(culprits):
            if place in rows:
                corner, wide, high = (-0.5, rows.index(place) - 0.5), len(columns), 1
            elif place in columns:
                corner, wide, high = (columns.index(place) - 0.5, -0.5), 1, len(rows)
            else:
                continue
            frame = Rectangle(corner, wide, high, fill=False, edgecolor="#1a5cb8", linewidth=1.6, clip_on=False)
            axes.add_patch(frame)
        axes.set_yticks(*_ticks(rows, names, culprits))
        axes.set_xticks(*_ticks(columns, names, culprits), rotation=60, ha="right", rotation_mode="anchor")
        for label in (*axes.get_yticklabels(), *axes.get_xticklabels()):
            if label.get_text().startswith("▸"):
                label.set_color(MARK)
                label.set_fontweight("bold")
        axes.set_ylabel(grid.row_tier)
        axes.set_xlabel(grid.column_tier)
        bar = figure.colorbar(image, ax=axes, pad=0.01)
        bar.set_ticks([1e-4, 1e-3, 1e-2, 1e-1, 1], labels=["none", "0.1 %", "1 %", "10 %", "100 %"])
        bar.set_label("failed")
        if grid.left_out:
            figure.supxlabel(f"{grid.left_out} components with fewer failures are not shown", fontsize=8)

    return draw


def _ticks(places: Sequence[int], names: Sequence[str], culprits: Collection[int]) -> tuple[list[int], list[str]]:
    """Positions and texts of the labels: every culprit, and others at an even step that keep clear of the culprits."""
    step = max(1, -(-len(places) // _MOST_NAMED))
    at = [k for k, place in enumerate(places) if place in culprits]
    at += [k for k in range(0, len(places), step) if all(abs(k - other) >= step for other in at)]
    marked = [("▸ " if places[k] in culprits else "") + names[places[k]] for k in sorted(at)]
    return sorted(at), marked
