"""What a reader returns, and the sieve that every row of a trace passes on the way there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import Attempts, JobTable
from perdure.traces.source import TraceSource
from perdure.traces.texts import side_by_side

NO_GPUS = "no GPUs"
NEVER_STARTED = "never started"
MAX_GPUS = 10_000_000  # a gang beyond this is a misread column
MAX_COUNT = 10**12  # of nodes, CPUs or MiB: so is one beyond this
MAX_S = 1e11  # so is a time beyond this: some 3,000 years


@dataclass(frozen=True, slots=True)
class Trace:
    """The jobs of a file, and all that was left out of them."""

    table: JobTable
    format: str
    left_out: Mapping[str, int] = field(default_factory=dict)  # reason -> rows
    notes: tuple[str, ...] = ()  # what a reader of the figures should know
    beside: tuple[Path, ...] = ()  # further files that it was read from


@dataclass(frozen=True, slots=True)
class Format:
    """One form of trace. `sniff` sees the first bytes and the file's name; `read` may raise `InputError`."""

    name: str
    about: str
    sniff: Callable[[bytes, str], bool]
    read: Callable[[TraceSource, bool], Trace]


class Sieve:
    """The rows of one file under judgement: which are kept, and how many were left out for what.

    `skip_bad` None: whoever asks cannot leave bad rows out.
    """

    def __init__(self, rows: int, at_row: Callable[[int], str], skip_bad: bool | None) -> None:
        self.kept = np.ones(rows, bool)
        self.left_out: dict[str, int] = {}
        self.skip_bad = skip_bad
        self._at_row = at_row

    def leave_out(self, rows: NDArray[np.bool_], why: str, count: int | None = None) -> None:
        """Leave rows out that a trace of this form may well hold. `count` counts records that are not rows here."""
        out = rows & self.kept
        self.kept &= ~rows
        found = int(out.sum()) if count is None else count
        if found:
            self.left_out[why] = self.left_out.get(why, 0) + found

    def bad(self, rows: NDArray[np.bool_], what: str, fix: str, values: NDArray[Any] | None = None) -> None:
        """Refuse rows that break the form: the first raises `InputError`, unless bad rows are to be skipped."""
        out = rows & self.kept
        if not out.any():
            return
        if self.skip_bad:
            self.leave_out(rows, what)
            return
        row = int(np.argmax(out))
        shown = "" if values is None else f" ({values[row]})"
        raise InputError(self._at_row(row), what + shown, or_skip(fix, self.skip_bad))


def or_skip(fix: str, skip_bad: bool | None) -> str:
    """What to do about a bad row: the option only where there is one."""
    return fix if skip_bad is None else f"{fix}, or pass --skip-bad to leave such rows out"


def gather(
    source: TraceSource,
    form: str,
    sieve: Sieve,
    *,
    job_id: NDArray[np.str_] | None,
    submit_s: NDArray[np.float64],
    gpus: NDArray[np.float64],
    duration_s: NDArray[np.float64],
    epoch_s: float | None = None,
    origin_s: float | None = None,
    attempts: Attempts | None = None,
    notes: tuple[str, ...] = (),
    **columns: NDArray[Any],
) -> Trace:
    """Judge the columns of a file, row i the i-th row, and make the table of what is kept, sorted by submit.

    Parameters
    ----------
    job_id : None numbers the jobs by their rows, for files that hold no ids.
    epoch_s : seconds since the epoch at which the file's clock shows 0; None where that is unknown.
    origin_s : the instant of the file's clock from which the table counts; the first submit by default.
    columns : further columns of `JobTable`; its times are on the file's clock too.

    Raises `InputError` for a bad row and for a file that leaves no job.
    """
    _judge(sieve, submit_s, gpus, duration_s)
    instants = [name for name in ("start_s", "end_s", "eligible_s") if name in columns]
    for name in instants:
        sieve.bad(np.abs(columns[name]) > MAX_S, f"{name} is absurd", "Give seconds", columns[name])
    if job_id is not None:
        _judge_ids(sieve, job_id)
    rows = np.flatnonzero(sieve.kept)
    if not len(rows):
        why = ", ".join(f"{count} left out: {reason}" for reason, count in sieve.left_out.items()) or "it holds no rows"
        raise InputError(str(source.path), f"no job is left of this trace ({form}: {why})", "Name a trace of GPU jobs")
    origin = float(submit_s[rows].min()) if origin_s is None else origin_s
    for name in instants:
        columns[name] = columns[name] - origin
    table = JobTable(
        job_id=_numbered(len(submit_s)) if job_id is None else job_id,
        submit_s=submit_s - origin,
        gpus=np.where(sieve.kept, gpus, 0).astype(np.int64),
        duration_s=duration_s,
        attempts=attempts,
        began_s=0.0 if epoch_s is None else epoch_s + origin,
        **columns,
    )
    order = rows[np.argsort(table.submit_s[rows], kind="stable")]
    table = table if len(order) == len(table) and (np.diff(order) == 1).all() else table.take(order)
    return Trace(table, form, sieve.left_out, notes)


def whole_counts(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Counts of nodes, CPUs or MiB, 0 where a count is missing or absurd: no job is judged by them."""
    told = np.isfinite(numbers) & (numbers >= 0) & (numbers <= MAX_COUNT)
    return np.where(told, numbers, 0).astype(np.int64)


def _numbered(rows: int) -> NDArray[np.str_]:
    return np.arange(1, rows + 1).astype(f"U{len(str(rows))}")


def _judge(
    sieve: Sieve, submit_s: NDArray[np.float64], gpus: NDArray[np.float64], duration_s: NDArray[np.float64]
) -> None:
    with np.errstate(invalid="ignore"):
        broken = ~np.isfinite(gpus) | (gpus != np.floor(gpus))
        late, long = np.abs(submit_s) > MAX_S, duration_s > MAX_S
    held = "Give how many GPUs the job held"
    sieve.bad(~np.isfinite(submit_s), "the submit time is missing or not a time", "Give it")
    sieve.bad(late, "the submit time is absurd", "Give seconds", submit_s)
    sieve.bad(broken, "the number of GPUs is missing or not a whole number", held, gpus)
    sieve.bad(gpus < 0, "the number of GPUs is negative", held, gpus)
    sieve.bad(gpus > MAX_GPUS, "the number of GPUs is absurd", held, gpus)
    sieve.bad(gpus == 0, "the job has 0 GPUs", held)
    sieve.bad(~np.isfinite(duration_s), "the duration is missing or not a number", "Give seconds of running")
    sieve.bad(duration_s < 0, "the duration is negative", "Give seconds of running", duration_s)
    sieve.bad(long, "the duration is absurd", "Give seconds of running", duration_s)


def _judge_ids(sieve: Sieve, job_id: NDArray[np.str_]) -> None:
    sieve.bad(job_id == "", "the job has no id", "Give every job an id of its own")
    rows = np.flatnonzero(sieve.kept)
    order, first = side_by_side(job_id[rows])
    repeated = np.zeros(len(job_id), bool)
    repeated[rows[order[~first]]] = True
    sieve.bad(repeated, "the job id was used before", "Give every job an id of its own", job_id)
