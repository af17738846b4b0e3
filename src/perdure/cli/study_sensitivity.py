"""``perdure study retry --sensitivity`` and ``delay``: which settings give the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.study_replays import given
from perdure.cli.table import word
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from perdure.studies.estimate import Estimate
    from perdure.studies.sensitivity import Sensitivity, SettingFigures

RETRY_FIGURES: Mapping[str, str] = {
    "sjf": "SJF", "las-2d": "LAS-2D", "gittins-2d": "GITTINS-2D", "jct_over_oracle": "OVER ORACLE",
    "success_lost": "LOST",
}  # fmt: skip
DELAY_FIGURES: Mapping[str, str] = {
    "wait_s": "WAIT", "median_wait_s": "MEDIAN", "fragmentation 2-4": "2-4 GPUs", "fragmentation 5-8": "5-8",
    "fragmentation >8": ">8", "nodes_in_use": "NODES", "free_nodes_at_two_thirds": "FREE",
}  # fmt: skip


def repeat_sensitivity(
    study: str,
    loads: Sequence[float],
    fixed: Mapping[str, str | None],
    seeds: int | None,
    workers: str | None,
    as_json: bool,
    *,
    wide: bool,
) -> int:
    """Run the study named over its settings, and print them with what is published.

    Raises `ConfigError` where an option is given that the published figures fix.
    """
    from perdure.studies.sensitivity import delay_sensitivity, retry_sensitivity

    for option, value in fixed.items():
        if value is not None:
            raise ConfigError(f"study {study}", f"{option} is that of the published figures here", "Leave it out")
    more: dict[str, Any] = {"loads": tuple(loads)} if loads else {}
    run = retry_sensitivity if study == "retry" else delay_sensitivity
    with progress(what="replaying") as tell:
        found = run(**given(seeds, workers), **more, progress=tell)
    if as_json:
        print_json("study-sensitivity", 1, **found.to_json())
    else:
        show(found, RETRY_FIGURES if study == "retry" else DELAY_FIGURES, wide=wide)
    return 0


def show(found: Sensitivity, headings: Mapping[str, str], *, wide: bool) -> None:
    """A row a setting, published figures above, then what lies in no setting's interval and the nearest setting."""
    said = {**found.published, **found.at_most}
    settings = [name.replace("_", " ").upper() for name in found.settings[0].setting]
    columns = (*map(word, settings), *(word(text, leave=2) for text in headings.values()), word("INSIDE"))
    published = [_figure(name, said[name]) for name in headings]
    rows = [("published", *[""] * (len(settings) - 1), *published, "")]
    for each in found.settings:
        cells = [_mark(name, each.figures[name], each.inside[name]) for name in headings]
        rows.append((*map(_value, each.setting.values()), *cells, f"{sum(each.inside.values())}/{len(headings)}"))
    print_line(
        f"{found.jobs} drawn jobs, {found.seeds} seeds; * marks an interval (95%) that the published value lies in."
    )
    print_table(columns, rows, wide=wide)
    for name, (low, high) in found.ranges().items():
        if not any(each.inside[name] for each in found.settings):
            text = f"{_figure(name, said[name])} lies in no setting's interval: from {_figure(name, low)} to "
            print_line(f"{headings[name]}: {text}{_figure(name, high)} here.")
    print_line(f"Nearest: {_told(found.nearest)}; mean distance {found.nearest.distance:.0%} of what is published.")
    print_line(f"Published: {found.source.removeprefix('published: ')}.")


def _told(each: SettingFigures) -> str:
    values = ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in each.setting.items())
    return f"{values} ({sum(each.inside.values())} of {len(each.inside)} inside)"


def _value(value: float | None) -> str:
    return "no cap" if value is None else f"{value:g}"


def _mark(name: str, found: Estimate, inside: bool) -> str:
    return _figure(name, found.mean) + ("*" if inside else "")


def _figure(name: str, value: float) -> str:
    """Waits as times, all else as shares."""
    if name.endswith("wait_s"):
        return f"{value / 60:.0f} min" if value >= 600 else f"{value:.0f} s"
    return f"{value:.2%}" if value < 0.02 else f"{value:.1%}"
