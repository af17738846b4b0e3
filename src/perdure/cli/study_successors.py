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
from perdure.durable import make_directory, write_whole
from perdure.errors import InputError
from perdure.installation import cache_folder

if TYPE_CHECKING:
    from perdure.model.table import JobTable
    from perdure.scheduling.slurm.settings import SchedulerSettings
    from perdure.studies.successors import CellStudy, Interval
    from perdure.succession.cells import Arrays, Remember
    from perdure.succession.trained import TrainedPlanner

DAY_S = 86_400.0
LEAST_DAYS = 21
MOST_GPUS = 1_000_000
_MOST_DIGITS = 9  # int() takes some thousands, and then raises
COLUMNS = (
    word("PLANNER"), word("MODEL"), word("PRICE"), word("INTERRUPTED (95%)"), word("OVERLAP (95%)", leave=1),
    word("SEAMLESS", leave=4), word("WASTED GPU h", leave=5), word("REGRET (95%)", leave=3), word("OF THE GAP (95%)"),
    word("BETTER", leave=6),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StudyCall:
    """What the command line asks for."""

    trace: Path | None  # None: this cluster's own past
    gpus: tuple[int, ...]  # of clusters; none: as many as the partition has
    links: tuple[int, ...]  # GPUs of a link
    planners: tuple[str, ...]
    models: tuple[str, ...]
    days: tuple[float, float] | None
    limit_h: float
    every_h: float
    seed: int
    partition: str = ""  # of this cluster
    save: Path | None = None  # where trained planners go


def study_call(
    trace: Path | None, gpus: str, link_gpus: str, planners: str | None, models: str, days: str | None, limit_h: float,
    every_h: float, seed: int, partition: str, save: Path | None,
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
    if trace is not None and partition:
        raise InputError("--partition", "a trace goes through one partition", "Leave it out, or leave --trace out")
    if trace is not None and not gpus:
        raise InputError("--gpus", "how large the cluster of the trace is, is not told", "Write it as --gpus 360,315")
    return StudyCall(
        trace, _counts("--gpus", gpus) if gpus else (), _counts("--link-gpus", link_gpus), chosen, named, span,
        limit_h, every_h, seed, partition, save,
    )  # fmt: skip


def _counts(option: str, text: str) -> tuple[int, ...]:
    counts = [int(each) if each.strip().isdecimal() and len(each) <= _MOST_DIGITS else 0 for each in text.split(",")]
    if not all(0 < each <= MOST_GPUS for each in counts):
        raise InputError(
            f"{option} {text[:80]!r}", f"not numbers from 1 to {MOST_GPUS}", f"Write it as {option} 360,315"
        )
    return tuple(counts)


def _span(text: str) -> tuple[float, float]:
    first, _, last = text.partition("-")
    is_short = len(first) <= _MOST_DIGITS and len(last) <= _MOST_DIGITS
    if not (is_short and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise InputError(f"--days {text[:80]!r}", "not two rising numbers of days", "Write it as --days 60-150")
    return float(first), float(last)


def run_study(call: StudyCall, as_json: bool, *, wide: bool) -> int:
    """Measure, and print it. Raises `InputError` and `ConfigError`."""
    from perdure.studies.successors import StudyOptions, study_cell, trained_on
    from perdure.succession.cells import StudyCell
    from perdure.succession.planners.registry import planner_named
    from perdure.succession.replayed import LinkShape, ReplayedQueue

    for name in call.planners:
        planner_named(name)
    options = StudyOptions(call.planners, call.models, seed=call.seed)
    shapes = tuple(LinkShape(each, 3600 * call.limit_h) for each in call.links)
    found, saved = [], []
    with progress(what="simulating"):
        history = _history(call)
        table = _prepared(history.table, history.name, call)
        for gpus in call.gpus or (history.gpus,):
            queue = ReplayedQueue.of(table, gpus, history.settings)
            cell = StudyCell(history.name, queue, shapes, 3600 * call.every_h)
            for column in range(len(shapes)):
                found.append(study_cell(cell, column, options, remembering()))
                if call.save is not None:
                    saved += [_saved(call.save, each) for each in trained_on(cell, column, options, remembering())]
    if as_json:
        cells = [each.to_json() for each in found]
        print_json("keep-study", 1, trace=str(call.trace or history.name), seed=call.seed, cells=cells, saved=saved)
        return 0
    for each in found:
        _print(each, wide=wide)
    for path in saved:
        print_line(f"wrote {path}")
    return 0


def _saved(folder: Path, trained: TrainedPlanner) -> str:
    """Write a trained planner; returns where. Raises `InputError`."""
    from perdure.succession.trained import packed

    training = trained.training
    name = f"{trained.planner.name}-{training.gpus}gpu-{training.limit_s / 3600:g}h.planner"
    data = packed(trained.planner, training)
    try:
        make_directory(folder)
        write_whole(folder / name, data)
    except OSError as err:
        raise InputError(f"--save {folder}", f"it cannot be written ({err.strerror})", "Name another folder") from err
    return str(folder / name)


@dataclass(frozen=True, slots=True)
class _History:
    """Jobs, and the scheduler that they go through."""

    name: str
    table: JobTable
    settings: SchedulerSettings
    gpus: int = 0  # of the cluster, where that is known


def _history(call: StudyCall) -> _History:
    """Of a trace, or of this cluster's own past. Raises `InputError`, `ConfigError`, `ClusterBusy`."""
    from perdure.succession.cells import SITE
    from perdure.traces.read import read

    if call.trace is not None:
        return _History(call.trace.name.partition(".")[0], read(call.trace).table, SITE)
    from perdure.cli.live_queue import live_queue

    queue, site = live_queue()
    usual = next((each.name for each in queue.partitions if each.is_default), "")
    name = call.partition or usual
    if queue.partition(name) is None:
        known = ", ".join(each.name for each in queue.partitions)
        raise InputError(f"--partition {name!r}", "the cluster has no such partition", f"Use one of: {known}")
    gpus = sum(node.gpus for node in queue.nodes_of((name,)))
    if not gpus:
        raise InputError(f"partition {name!r}", "it has no GPUs", "Name one that has with --partition")
    jobs = site.past.jobs
    own = jobs.take(np.flatnonzero(jobs.partition == name))
    return _History(f"{queue.cluster or 'cluster'}-{name}", own, site.settings, gpus)


def _prepared(table: JobTable, name: str, call: StudyCall) -> JobTable:
    from perdure.succession.cells import with_limits

    if call.days is not None:
        begin, end = (DAY_S * day + float(table.submit_s[0]) for day in call.days)
        table = table.take(np.flatnonzero((table.submit_s >= begin) & (table.submit_s < end)))
    table = table.take(np.flatnonzero(table.gpus > 0))
    days = (table.submit_s[-1] - table.submit_s[0]) / DAY_S if len(table) else 0.0
    if days < LEAST_DAYS:
        what = f"its jobs come within {days:.0f} days, and a study needs {LEAST_DAYS}"
        raise InputError(str(call.trace or name), what, "Take a longer trace, or more of it with --days")
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
