"""``perdure when bench``: walk a predictor forward over looks at waiting jobs, and print how right it was."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.progress import progress
from perdure.cli.table import word
from perdure.errors import InputError
from perdure.model.queue_looks import QueueLooks
from perdure.traces.snapshots import read_looks
from perdure.waits.evaluate import DAY_S, Answers, WaitScore, score, walk
from perdure.waits.features import wait_table
from perdure.waits.registry import DEFAULT, predictor_named

FORMATS = ("drac",)
DAYS = (word("DAY"), word("JOBS"), word("MSE"), word("COVERED"))


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure on what."""

    data: Path
    form: str
    cut: str
    predictor: str | None
    refit_days: int
    seed: int


def bench_predictor(asked: BenchOptions, out: Path | None, *, as_json: bool) -> int:
    """Measure one predictor, and print it. Raises `InputError` and `ConfigError`."""
    if asked.form not in FORMATS:
        raise InputError(f"format {asked.form!r}", "no such format of snapshots", f"Use one of: {', '.join(FORMATS)}")
    cut, predictor = _day(asked.cut), predictor_named(asked.predictor or DEFAULT)
    began = time.perf_counter()
    with progress(what="reading the looks"):
        looks = read_looks(asked.data)
        cut_s = _cut_s(looks, cut, asked.data)
        table = wait_table(looks)
    read = time.perf_counter()
    with progress(what="predicting"):
        answers = walk(table, predictor, cut_s, refit_days=asked.refit_days, seed=asked.seed)
    walked = time.perf_counter()
    found = score(answers)
    if out is not None:
        _write(answers, out)
    if as_json:
        said = {**asdict(found), "days": [{**asdict(each), "day": _date(looks, each.day)} for each in found.days]}
        print_json(
            "when-bench", 1, predictor=predictor.name, data=str(asked.data), cut=asked.cut, refit_days=asked.refit_days,
            seed=asked.seed, read_s=round(read - began, 3), walk_s=round(walked - read, 3), remarks=answers.remarks,
            **said,
        )  # fmt: skip
    else:
        _print(looks, predictor.name, found, answers.remarks)
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as err:
        raise InputError(f"cut {text!r}", "is not a day", "Write it as 2021-06-17") from err


def _cut_s(looks: QueueLooks, cut: date, data: Path) -> float:
    """The cut on the clock of the looks. Raises `InputError` for one with nothing before or after it."""
    cut_s = (cut - looks.day_zero).days * DAY_S
    first, last = (looks.day_zero + timedelta(seconds=float(at)) for at in (looks.poll_s.min(), looks.poll_s.max()))
    if not looks.poll_s.min() < cut_s <= looks.poll_s.max():
        what = f"the looks are of {first} to {last}: the cut {cut} leaves nothing before it, or nothing after it"
        raise InputError(str(data), what, "Choose a day in between")
    return cut_s


def _date(looks: QueueLooks, day: int) -> str:
    return str(looks.day_zero + timedelta(days=day))


def _print(looks: QueueLooks, name: str, found: WaitScore, remarks: tuple[str, ...]) -> None:
    low, middle, high = found.pinball_log10
    print_line(f"{name}: {found.n} waits on {len(found.days)} days")
    print_line(f"mean squared error of log10: {found.mse_log10:.3f}; within a factor of 2: {found.within_2x:.1%}")
    print_line(f"80% intervals hold {found.coverage:.1%}, on the worst day {found.worst_day_coverage:.1%}")
    print_line(f"their mean width: {found.width_decades:.2f} decades; pinball: {low:.3f}, {middle:.3f}, {high:.3f}")
    print_line(
        f"median error {found.median_abs_error_s / 3600:.2f} h, mean error {found.mean_abs_error_s / 3600:.2f} h"
    )
    for each in found.thresholds:
        print_line(
            f"longer than {each.over_s / 60:.0f} min or not: right {each.accuracy:.1%}, both kinds alike "
            f"{each.balanced_accuracy:.1%}; always saying the more frequent one {each.base_rate:.1%}"
        )
    for remark in remarks:
        print_line(remark)
    print_table(DAYS, ([_date(looks, d.day), d.n, f"{d.mse_log10:.3f}", f"{d.coverage:.1%}"] for d in found.days))


def _write(answers: Answers, out: Path) -> None:
    try:
        with out.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(("id", "p10", "p50", "p90", "truth"))
            rows.writerows(_rows(answers))
    except OSError as err:
        raise InputError(str(out), f"cannot be written ({err.strerror})", "Name a file that you may write") from err


def _rows(answers: Answers) -> Iterator[tuple[Any, ...]]:
    wait_s = answers.table.wait_s
    for job, said, truth in zip(answers.table.job.tolist(), answers.quantiles_s.tolist(), wait_s.tolist(), strict=True):
        yield (job, *(f"{each:.1f}" for each in said), f"{truth:.0f}")
