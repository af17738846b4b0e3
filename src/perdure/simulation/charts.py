"""Pictures of runs side by side: completion times, waits by size, use over time, and who ran when."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import MissingExtra
from perdure.installation import to_install
from perdure.model.table import JobTable
from perdure.simulation.fairness import rho
from perdure.simulation.groups import SIZES, GroupKind
from perdure.simulation.result import Result
from perdure.simulation.use import stretches, use_over_time
from perdure.simulation.verdict import PolicyStanding

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
MAX_RUNS = 6  # that one picture can tell apart
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_MARKS = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h", 86_400: "1 d", 864_000: "10 d",
    8_640_000: "100 d",
}  # fmt: skip
_POINTS = 1001  # of a curve
_BINS = 300  # of the time axis
_GANTT_JOBS = 40
_CHANGED_GROUPS = 15
_WORST_SHOWN = 2.0  # a change by more, three times as long, is drawn as this
_BY = {GroupKind.CLUSTER: "by virtual cluster", GroupKind.USER: "by user", GroupKind.GPUS: "by GPUs"}
_CROWD = 200  # jobs of which these are chosen
_GANTT_RUNS = 3
_DPI = 110


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours: of the page, its words, its lines, and of the runs."""

    page: str
    words: str
    lines: str
    runs: tuple[str, ...]


LIGHT = Theme("#ffffff", "#1f2328", "#d9dde1", ("#0b62c4", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d"))
DARK = Theme("#15181b", "#dfe3e6", "#383e44", ("#6cb0ff", "#ff9e64", "#5fd38a", "#c89bff", "#e5c04b", "#ff8fc0"))


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as a picture shows it."""

    label: str
    table: JobTable
    result: Result


def draw(shown: Sequence[Shown], theme: Theme, best: PolicyStanding | None = None) -> dict[str, bytes]:
    """Each picture as PNG, by its name; the first run is what others are compared with.

    `best`: how the best of several policies does. Raises `MissingExtra` without Matplotlib.
    """
    pictures = dict(PICTURES)
    if best is not None and len(best.against_first) > 1 and best.jct.change:
        pictures = {CHANGES: partial(_changes, best), **pictures}
    if np.isfinite(shown[0].table.start_s).any():
        pictures[RECORDED] = _recorded

    def of_these(picture: Callable[[Figure, Sequence[Shown], Theme], None]) -> Callable[[Figure], None]:
        return lambda figure: picture(figure, shown, theme)

    return as_png({name: of_these(picture) for name, picture in pictures.items()}, theme)


def as_png(pictures: Mapping[str, Callable[[Figure], None]], theme: Theme) -> dict[str, bytes]:
    """Each picture as PNG, by its name. Raises `MissingExtra` without Matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as err:
        raise MissingExtra("whatif --out", "Matplotlib is not installed", to_install("sim")) from err
    drawn = {}
    with rc_context(_style(theme)):
        for name, picture in pictures.items():
            figure = Figure(figsize=(8, 4.2), layout="constrained")
            picture(figure)
            file = io.BytesIO()
            figure.savefig(file, format="png", dpi=_DPI)
            drawn[name] = file.getvalue()
    return drawn


def waits_by_size(table: JobTable, result: Result) -> list[float]:
    """Mean wait in seconds of the jobs of each class of `SIZES`; NaN where there are none."""
    wait_s = result.start_s - table.submit_s
    classes = [wait_s[(table.gpus >= low) & (table.gpus <= high)] for low, high in SIZES]
    return [float(each.mean()) if len(each) else float("nan") for each in classes]


def crowded_jobs(table: JobTable, result: Result) -> NDArray[np.intp]:
    """Rows of jobs that held the most GPU time, of those that waited longest together, one submit after another."""
    wait_s = result.start_s - table.submit_s
    crowd = min(_CROWD, len(table))
    waited = np.concatenate([[0.0], np.cumsum(wait_s)])
    first = int(np.argmax(waited[crowd:] - waited[:-crowd]))
    among = np.arange(first, first + crowd)
    service = table.gpus[among] * np.bincount(result.attempts.job, result.attempts.ran_s, len(table))[among]
    return np.sort(among[np.argsort(-service, kind="stable")[:_GANTT_JOBS]])


def _style(theme: Theme) -> Any:
    return {
        "figure.facecolor": theme.page, "axes.facecolor": theme.page, "savefig.facecolor": theme.page,
        "text.color": theme.words, "axes.labelcolor": theme.words, "axes.titlecolor": theme.words,
        "xtick.color": theme.words, "ytick.color": theme.words, "axes.edgecolor": theme.lines,
        "grid.color": theme.lines, "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False, "font.size": 10, "text.parse_math": False,
    }  # fmt: skip


def unit_of(longest_s: float) -> tuple[float, str]:
    """The largest unit of which the axis shows at least two."""
    return next((unit for unit in _UNITS if longest_s >= 2 * unit[0]), _UNITS[-1])


def _changes(best: PolicyStanding, figure: Figure, shown: Sequence[Shown], theme: Theme) -> None:  # noqa: ARG001
    """Of each kind the losers, then the groups that have most jobs; each with the change of its mean JCT and the
    interval.
    """
    kinds = [kind for kind in GroupKind if any(group[0] is kind for group in best.against_first)]
    panels, changed, losers = figure.subplots(1, len(kinds), squeeze=False)[0], best.changed, best.losers
    for axes, kind in zip(panels, kinds, strict=True):
        mine = [(group[1], of["jct_s"]) for group, of in best.against_first.items() if group[0] is kind]
        most = sorted(mine, key=lambda each: ((kind, each[0]) not in losers, -each[1].jobs))[:_CHANGED_GROUPS]
        for place, (name, found) in enumerate(most):
            colour = theme.runs[0] if (kind, name) not in changed else theme.runs[1 if found.change > 0 else 2]
            if found.low is not None and found.high is not None:
                ends = np.minimum([found.low, found.high], _WORST_SHOWN)
                axes.plot(ends, [place, place], color=colour, linewidth=2)
            axes.plot(min(found.share, _WORST_SHOWN), place, "o", color=colour, markersize=5)
        axes.axvline(0.0, color=theme.words, linewidth=1)
        axes.set_yticks(range(len(most)), [name or "none" for name, _ in most], fontsize=8)
        axes.set(title=_BY[kind], xlabel="change of the mean JCT", ylim=(len(most) - 0.4, -0.6))
        axes.grid(visible=False, axis="y")
        percent(axes.xaxis)


def _completion(figure: Figure, shown: Sequence[Shown], theme: Theme) -> None:
    """The first run's curve; of the others how far their quantiles lie apart from its, since curves overlap."""
    places = np.linspace(0.0, 1.0, _POINTS)
    jct_s = [np.maximum(np.quantile(run.result.end_s - run.table.submit_s, places), 1.0) for run in shown]
    panels = figure.subplots(1, min(len(shown), 2), squeeze=False)[0]
    panels[0].plot(jct_s[0], places, color=theme.runs[0], linewidth=2)
    panels[0].set_xscale("log")
    _mark_times(panels[0], every=len(panels))
    panels[0].set(title=shown[0].label, xlabel="completion time", ylabel="share of jobs", ylim=(0, 1))
    percent(panels[0].yaxis)
    if len(shown) == 1:
        return
    others = list(zip(shown, jct_s, theme.runs, strict=False))[1:]
    for run, mine, colour in others:
        panels[1].plot(places, mine / jct_s[0], color=colour, linewidth=2, label=run.label)
    panels[1].axhline(1.0, color=theme.runs[0], linewidth=2)
    panels[1].set_yscale("log")
    _mark_ratios(panels[1].yaxis, "{x:g} times")
    panels[1].set(title=f"against {shown[0].label}", xlabel="share of jobs that end sooner", xlim=(0, 1))
    percent(panels[1].xaxis)
    _legend(panels[1], len(shown))


def _waits(figure: Figure, shown: Sequence[Shown], theme: Theme) -> None:
    axes = figure.subplots()
    waits = [waits_by_size(run.table, run.result) for run in shown]
    if np.nanmax(waits) < 1.0:  # less than a second is no wait, but what rounding leaves
        _words(axes, "No job waited: each started when it was submitted.")
        return
    unit_s, unit = unit_of(float(np.nanmax(waits)))
    width = 0.8 / len(shown)
    for place, (run, colour) in enumerate(zip(shown, theme.runs, strict=False)):
        at = np.arange(len(SIZES)) + (place - (len(shown) - 1) / 2) * width
        axes.bar(at, np.nan_to_num(np.array(waits[place]) / unit_s), width * 0.9, color=colour, label=run.label)
    middle = (f"{low} to {high}" for low, high in SIZES[1:-1])
    axes.set_xticks(range(len(SIZES)), ["1 GPU", *middle, f"{SIZES[-1][0]} and more"])
    axes.grid(visible=False, axis="x")
    axes.set(xlabel="GPUs of the job", ylabel=f"mean wait, {unit}")
    _legend(axes, len(shown))


def _use(figure: Figure, shown: Sequence[Shown], theme: Theme) -> None:
    """The first run's use; of the others how many more GPUs are in use than then."""
    begin = min(float(run.table.submit_s[0]) for run in shown)
    end = max(float(run.result.end_s.max()) for run in shown)
    edges = np.linspace(begin, max(end, begin + 1.0), _BINS + 1)
    unit_s, unit = unit_of(edges[-1] - begin)
    shares = [use_over_time(run.table, run.result, edges) for run in shown]
    panels = figure.subplots(min(len(shown), 2), 1, sharex=True, squeeze=False)[:, 0]
    panels[0].stairs(shares[0], (edges - begin) / unit_s, color=theme.runs[0], linewidth=1.5)
    panels[0].set(title=shown[0].label, ylabel="GPUs in use", ylim=(0, 1.02))
    for run, share, colour in list(zip(shown, shares, theme.runs, strict=False))[1:]:
        panels[1].stairs(
            share - shares[0], (edges - begin) / unit_s, color=colour, linewidth=1.5, label=run.label, baseline=None
        )
        panels[1].set(title=f"more than under {shown[0].label}", ylabel="of all GPUs")
    panels[-1].set(xlabel=f"{unit} since the first submit")
    for axes in panels:
        percent(axes.yaxis)
    _legend(panels[-1], len(shown))


def _rho(figure: Figure, shown: Sequence[Shown], theme: Theme) -> None:
    draw_rho(figure.subplots(), [(run.label, rho(run.table, run.result)) for run in shown], theme)


def draw_rho(axes: Axes, runs: Sequence[tuple[str, Floats]], theme: Theme) -> None:
    """For each run, the share of the jobs whose rho was no larger; jobs of which it is not known are left out."""
    places = np.linspace(0.0, 1.0, _POINTS)
    known = [(label, ratio[np.isfinite(ratio) & (ratio > 0)]) for label, ratio in runs]
    if not any(len(ratio) for _, ratio in known):
        _words(axes, "Of no job is it known how it would run alone.")
        return
    for (label, ratio), colour in zip(known, theme.runs, strict=False):
        if len(ratio):
            axes.plot(np.quantile(ratio, places), places, color=colour, linewidth=2, label=label)
    axes.axvline(1.0, color=theme.words, linewidth=1)
    axes.set_xscale("log")
    _mark_ratios(axes.xaxis, "{x:g}")
    axes.set(xlabel="rho: completion time over that alone on a share", ylabel="share of jobs", ylim=(0, 1))
    percent(axes.yaxis)
    _legend(axes, len(runs))


def _gantt(figure: Figure, shown: Sequence[Shown], theme: Theme) -> None:
    shown = shown[:_GANTT_RUNS]
    rows = crowded_jobs(shown[0].table, shown[0].result)
    begin = float(shown[0].table.submit_s[rows[0]])
    until = max(float(np.quantile(run.result.end_s[rows], 0.8)) for run in shown)
    unit_s, unit = unit_of(until - begin)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, run, colour in zip(panels, shown, theme.runs, strict=False):
        submit_s, last_s = run.table.submit_s[rows], run.result.end_s[rows]
        lines = np.arange(len(rows))
        axes.hlines(lines, (submit_s - begin) / unit_s, (last_s - begin) / unit_s, color=theme.lines, zorder=2)
        job, start_s, end_s, _ = stretches(run.table.gpus, run.result)
        mine = np.isin(job, rows) & (end_s > start_s)
        line, length = np.searchsorted(rows, job[mine]), (end_s[mine] - start_s[mine]) / unit_s
        axes.barh(line, length, left=(start_s[mine] - begin) / unit_s, height=0.8, color=colour, zorder=3)
        axes.set(title=run.label, xlabel=unit, xlim=(0, max(until - begin, 1.0) / unit_s))
        axes.grid(visible=False, axis="y")
    panels[0].set(ylabel="job", ylim=(len(rows) - 0.4, -0.6))
    every = max(1, len(rows) // 20)
    labels = [f"{run_gpus} GPU{'s' if run_gpus > 1 else ''}" for run_gpus in shown[0].table.gpus[rows].tolist()]
    panels[0].set_yticks(range(0, len(rows), every), labels[::every], fontsize=7)


def _recorded(figure: Figure, shown: Sequence[Shown], theme: Theme) -> None:
    axes = figure.subplots()
    places = np.linspace(0.0, 1.0, _POINTS)
    for run, colour in zip(shown, theme.runs, strict=False):
        known = np.isfinite(run.table.start_s)
        wait_s = np.quantile((run.result.start_s - run.table.submit_s)[known], places)
        axes.plot(np.maximum(wait_s, 1.0), places, color=colour, linewidth=2, label=run.label)
    table = shown[0].table
    wait_s = np.quantile((table.start_s - table.submit_s)[np.isfinite(table.start_s)], places)
    axes.plot(np.maximum(wait_s, 1.0), places, color=theme.words, linewidth=2, linestyle="--", label="as recorded")
    axes.set_xscale("log")
    _mark_times(axes)
    axes.set(xlabel="wait until the first start", ylabel="share of jobs with a recorded start", ylim=(0, 1))
    percent(axes.yaxis)
    axes.legend(loc="best", fontsize=9)


PICTURES: Mapping[str, Callable[[Figure, Sequence[Shown], Theme], None]] = {
    "completion": _completion,
    "waits": _waits,
    "use": _use,
    "rho": _rho,
    "gantt": _gantt,
}
RECORDED = "recorded"  # a further picture, where starts were recorded
CHANGES = "changes"  # and where policies are compared


def _words(axes: Axes, text: str) -> None:
    """What there is to say where nothing can be drawn."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)


def _mark_times(axes: Axes, every: int = 1) -> None:
    """Seconds on a logarithmic axis, marked where a person thinks; `every` second mark where it is narrow."""
    low, high = axes.get_xlim()
    kept = {at: word for at, word in list(_MARKS.items())[::every] if low <= at <= high}
    axes.set_xticks(list(kept), list(kept.values()))
    axes.set_xticks([], minor=True)


def _mark_ratios(axis: Axis, form: str) -> None:
    """Mark a logarithmic axis at 1, 2 and 5 of each power of ten, as many as there is room for."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())  # its marks would be formulas, and no text here is read as one
    axis.set_major_formatter(form)


def percent(axis: Axis) -> None:
    """Mark shares in per cent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _legend(axes: Axes, runs: int) -> None:
    if runs > 1:
        axes.legend(loc="best", fontsize=9)
