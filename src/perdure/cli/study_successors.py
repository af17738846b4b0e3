"""``perdure study successors``: planners of successors measured on a trace, next to the oracle."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

import numpy as np

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.table import word
from perdure.errors import InputError
from perdure.installation import cache_folder

if TYPE_CHECKING:
    from perdure.model.table import JobTable
    from perdure.studies.successors import CellStudy, Interval
    from perdure.succession.cells import Arrays, Remember

DAY_S = 86_400.0
LEAST_DAYS = 30
MOST_GPUS = 1_000_000
COLUMNS = (
    word("PLANNER"), word("MODEL"), word("PRICE"), word("INTERRUPTED (95%)"), word("OVERLAP (95%)", leave=1),
    word("SEAMLESS", leave=4), word("WASTED GPU h", leave=5), word("REGRET (95%)", leave=3), word("OF THE GAP (95%)"),
    word("BETTER", leave=6),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StudyCall:
    """What the command line asks for."""

    trace: Path
    gpus: tuple[int, ...]  # of clusters
    links: tuple[int, ...]  # GPUs of a link
    planners: tuple[str, ...]
    models: tuple[str, ...]
    days: tuple[float, float] | None
    limit_h: float
    every_h: float
    seed: int


def study_call(
    trace: Path, gpus: str, link_gpus: str, planners: str | None, models: str, days: str | None, limit_h: float,
    every_h: float, seed: int,
) -> StudyCall:  # fmt: skip
    """Read the options. Raises `InputError` and `ConfigError`."""
    from perdure.studies.successors import MODELS
    from perdure.succession.planners.registry import available

    named = tuple(models.split(","))
    if unknown := [each for each in named if each not in MODELS]:
        raise InputError(
            f"--models {unknown[0]!r}", "no model of the scheduler has that name", "Use true, wrong or both"
        )
    chosen = tuple(planners.split(",")) if planners else available()
    span = None if days is None else _span(days)
    return StudyCall(
        trace, _counts("--gpus", gpus), _counts("--link-gpus", link_gpus), chosen, named, span, limit_h, every_h, seed
    )


def _counts(option: str, text: str) -> tuple[int, ...]:
    counts = [int(each) if each.strip().isdecimal() else 0 for each in text.split(",")]
    if not all(0 < each <= MOST_GPUS for each in counts):
        raise InputError(f"{option} {text!r}", f"not numbers from 1 to {MOST_GPUS}", f"Write it as {option} 360,315")
    return tuple(counts)


def _span(text: str) -> tuple[float, float]:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise InputError(f"--days {text!r}", "not two rising numbers of days", "Write it as --days 60-150")
    return float(first), float(last)


def run_study(call: StudyCall, as_json: bool, *, wide: bool) -> int:
    """Measure, and print it. Raises `InputError` and `ConfigError`."""
    from perdure.studies.successors import StudyOptions, study_cell
    from perdure.succession.cells import SITE, StudyCell
    from perdure.succession.planners.registry import planner_named
    from perdure.succession.replayed import LinkShape, ReplayedQueue

    for name in call.planners:
        planner_named(name)
    options = StudyOptions(call.planners, call.models, seed=call.seed)
    shapes = tuple(LinkShape(each, 3600 * call.limit_h) for each in call.links)
    found = []
    with progress(what="simulating"):
        table = _table(call)
        for gpus in call.gpus:
            cell = StudyCell(
                call.trace.name.partition(".")[0], ReplayedQueue.of(table, gpus, SITE), shapes, 3600 * call.every_h
            )
            found += [study_cell(cell, column, options, remembering()) for column in range(len(shapes))]
    if as_json:
        print_json("keep-study", 1, trace=str(call.trace), seed=call.seed, cells=[each.to_json() for each in found])
        return 0
    for each in found:
        _print(each, wide=wide)
    return 0


def _table(call: StudyCall) -> JobTable:
    from perdure.succession.cells import with_limits
    from perdure.traces.read import read

    table = read(call.trace).table
    if call.days is not None:
        begin, end = (DAY_S * day for day in call.days)
        table = table.take(np.flatnonzero((table.submit_s >= begin) & (table.submit_s < end)))
    table = table.take(np.flatnonzero(table.gpus > 0))
    days = (table.submit_s[-1] - table.submit_s[0]) / DAY_S if len(table) else 0.0
    if days < LEAST_DAYS:
        what = f"its jobs come within {days:.0f} days, and a study needs {LEAST_DAYS}"
        raise InputError(str(call.trace), what, "Take a longer trace, or more of it with --days")
    return with_limits(table, 3600 * call.limit_h, call.seed)


def remembering(folder: Path | None = None) -> Remember:
    """Keeps what was calculated in files of the user's cache, named by what it was calculated from."""
    folder = folder or cache_folder() / "keep-study"

    def remember(key: str, make: Callable[[], Arrays]) -> Arrays:
        path = folder / f"{key}.npz"
        try:
            with np.load(path, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
        except (OSError, ValueError, EOFError):  # not there, or cut off
            made = make()
        _keep(path, made)
        return made

    return remember


def _keep(path: Path, made: Arrays) -> None:
    """Write the whole file or none; where that cannot be done, it is calculated again the next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            np.savez_compressed(file, **made)  # type: ignore[arg-type]
        os.replace(file.name, path)
    except OSError:
        return


def _print(study: CellStudy, *, wide: bool) -> None:
    oracle = study.oracle_h.get("0.25", (0.0, 0.0))
    print_line(
        f"{study.name}: {study.load} load, {study.links} links. Submitted at the end, successors "
        f"interrupt for {study.reactive_h:.1f} h; by the oracle, at a price of 0.25, for {oracle[0]:.1f} h, with "
        f"{oracle[1]:.1f} h of overlap."
    )
    print_table(COLUMNS, _rows(study), wide=wide)


def _rows(study: CellStudy) -> Sequence[tuple[object, ...]]:
    from perdure.studies.successors import JUDGED_AT, PRICELESS

    words = {True: "yes", False: "no", None: ""}
    return [
        (
            each.planner, each.model, f"{each.price:g}", _hours(each.interruption_h), _hours(each.overlap_h),
            f"{each.seamless:.0%}", f"{each.wasted_gpu_h:.1f}", _hours(each.regret_h),
            f"{each.gap.mean:.0%} ({each.gap.low:.0%} to {each.gap.high:.0%})",
            words[study.better.get(f"{each.model} {each.planner}")],
        )
        for each in study.points
        if each.price == JUDGED_AT or each.planner not in PRICELESS
    ]  # fmt: skip


def _hours(each: Interval) -> str:
    return f"{each.mean:.1f} h ({each.low:.1f} to {each.high:.1f})"
