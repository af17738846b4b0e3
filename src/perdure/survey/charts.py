"""Pictures of a failure study: what each reason cost, and after how long it struck."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.survey.tally import FailedAttempt, Tally

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BARS = 15
_COLOURS = ("#0b62c4", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d")
_MARKS = {60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h", 86_400: "1 d", 864_000: "10 d"}
_DPI = 110


def draw(found: Tally, failed: Sequence[FailedAttempt]) -> dict[str, bytes]:
    """PNG pictures by name. Raises `MissingExtra` without Matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as err:
        raise MissingExtra("pictures", "Matplotlib is not installed", to_install("sim")) from err
    return {
        "lost": _png(_lost(Figure(figsize=(8, 4.5), layout="constrained"), found)),
        "rtf": _png(_run_times(Figure(figsize=(8, 4.5), layout="constrained"), found, failed)),
    }


def _lost(figure: Figure, found: Tally) -> Figure:
    axes = figure.add_subplot()
    rows = found.rows[:MAX_BARS][::-1]
    axes.barh([row.reason for row in rows], [row.lost_gpu_h or 0.0 for row in rows], color=_COLOURS[0])
    axes.set_xlabel("GPU-hours lost")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _run_times(figure: Figure, found: Tally, failed: Sequence[FailedAttempt]) -> Figure:
    axes = figure.add_subplot()
    for row, colour in zip((r for r in found.rows if r.rtf_s), _COLOURS, strict=False):
        times = np.sort([each.ran_s for each in failed if each.reason == row.reason and each.ran_s is not None])
        shares = np.arange(1, len(times) + 1) / len(times)
        axes.step(np.maximum(times, 1.0), shares, where="post", color=colour, label=f"{row.reason} ({row.trials})")
    axes.set_xscale("log")
    axes.set_xticks(list(_MARKS), list(_MARKS.values()))
    axes.set_xlabel("run time to failure")
    axes.set_ylabel("share of the reason's failures")
    axes.set_ylim(0, 1)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize="small")
    return figure


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=_DPI, metadata={"Software": None})
    return out.getvalue()
