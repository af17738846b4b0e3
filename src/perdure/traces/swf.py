"""The Standard Workload Format of the Parallel Workloads Archive, and files that take after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import re2
from numpy.typing import NDArray

from perdure.model.table import TableEnding
from perdure.traces.cells import Block, Line, as_texts, at_blanks, blocks, take
from perdure.traces.columns import MAX_TEXT
from perdure.traces.source import TraceSource
from perdure.traces.trace import Format, Sieve, Trace, gather

# Columns by place, as the archive defines them.
_JOB, _SUBMIT, _WAIT, _RUN, _PROCS, _ASKED, _LIMIT, _STATUS, _USER, _QUEUE = 0, 1, 2, 3, 4, 7, 8, 10, 11, 14
_PARTITION = 15
_USED = (_JOB, _SUBMIT, _WAIT, _RUN, _PROCS, _ASKED, _LIMIT, _STATUS, _USER, _QUEUE, _PARTITION)
_COLUMNS = 18
_NAMED, _QUEUE_NAME = 21, 19  # MetaCentrum writes this many columns, and the queue by name into that
_BROKEN = [np.nan] * len(_USED)
_ENDINGS = {0: TableEnding.FAILED, 1: TableEnding.PASSED, 5: TableEnding.KILLED}
_UNIX_START = re2.compile(r";\s*UnixStartTime:\s*(\d{1,12})")
_NUMBER = re2.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_EXACT = 2.0**53  # whole numbers below it are exact
_EPOCH_FROM = 500_000_000.0  # submits beyond this many seconds are an absolute clock


def sniff(head: bytes, _name: str) -> bool:
    """True where the first line that is not a comment begins with 18 numbers."""
    for line in head.split(b"\n"):
        if line.strip() and not line.lstrip().startswith(b";"):
            words = line.split()
            return len(words) >= _COLUMNS and all(_NUMBER.fullmatch(word) for word in words[:_COLUMNS])
    return False


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read a log, each processor as one GPU: the archive's machines have none, and policies only count.

    -1 is unknown. A job of unknown processors has those it asked for; jobs whose run time or processors nobody knows
    are left out and counted, and so are lines of partial executions (status 2 to 4), which a whole line sums up.
    """
    log = _log(source)
    numbers = log.numbers
    sieve = Sieve(len(numbers), lambda row: source.at_line(int(log.lines[row])), skip_bad)
    broken = np.asarray(np.isnan(numbers).any(axis=1))
    sieve.bad(broken, "the line has fewer than 18 columns or a word that is not a number", "Fix the line")
    unknown = numbers == -1
    column = dict(zip(_USED, np.where(unknown, np.nan, numbers).T, strict=True))
    processors = np.where(np.nan_to_num(column[_PROCS]) > 0, column[_PROCS], column[_ASKED])
    sieve.leave_out(np.isin(column[_STATUS], (2, 3, 4)), "a part of a job that another line sums up")
    start_s = column[_SUBMIT] + column[_WAIT]
    # Where the clock is absolute, an unknown end of 0 shows as a run time of minus the start.
    sieve.leave_out(np.isnan(column[_RUN]) | (start_s + column[_RUN] == 0) & (start_s > 0), "the run time is unknown")
    sieve.leave_out(~(processors > 0), "the processors are unknown")
    queue = log.queues if (log.queues != "").any() else _whole(column[_QUEUE])
    absolute = bool(len(numbers)) and float(np.nanmin(column[_SUBMIT], initial=np.inf)) > _EPOCH_FROM
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=_whole(column[_JOB]),
        submit_s=column[_SUBMIT],
        gpus=processors,
        duration_s=column[_RUN],
        epoch_s=0.0 if absolute else _began_s(source),
        start_s=start_s,
        end_s=start_s + column[_RUN],
        walltime_s=column[_LIMIT],
        user=_whole(column[_USER]),
        vc=queue,
        partition=queue if np.isnan(column[_PARTITION]).all() else _whole(column[_PARTITION]),
        ending=_endings(column[_STATUS]),
        notes=("each processor counts as one GPU",),
    )


def _began_s(source: TraceSource) -> float | None:
    """Seconds since the epoch at which the log began, where its head tells them."""
    found = _UNIX_START.search(source.head.decode("utf-8", "replace"))
    return float(found[1]) if found else None


def _whole(numbers: NDArray[np.float64]) -> NDArray[np.str_]:
    """Whole numbers as texts, "" where unknown or too large to be exact."""
    known = np.abs(numbers) < _EXACT
    whole = np.where(known, numbers, 0).astype(np.int64)
    width = max(len(str(whole.max(initial=0))), len(str(whole.min(initial=0))))
    return np.where(known, whole.astype(f"U{width}"), "")


def _endings(status: NDArray[np.float64]) -> NDArray[np.int8]:
    endings = np.full(len(status), TableEnding.UNKNOWN, np.int8)
    for word, ending in _ENDINGS.items():
        endings[status == word] = ending
    return endings


@dataclass(frozen=True, slots=True)
class _Log:
    """The lines of a log that are jobs, one after another."""

    lines: NDArray[np.int64]  # their places in the file
    numbers: NDArray[np.float64]  # shape (n_jobs, 11): the columns that are used; NaN in a broken line
    queues: NDArray[np.str_]  # by name, where the file names them


def _log(source: TraceSource) -> _Log:
    parts = [_Log(np.empty(0, np.int64), np.empty((0, len(_USED))), np.empty(0, "U1"))]
    for block in blocks(source):
        parts += _parts(block)
    order = np.argsort(np.concatenate([part.lines for part in parts]), kind="stable")
    columns = {name: [getattr(part, name) for part in parts] for name in _Log.__slots__}
    del parts
    return _Log(**{name: np.concatenate(columns.pop(name))[order] for name in _Log.__slots__})


def _parts(block: Block) -> list[_Log]:
    """The jobs of a block: of lines with as many columns as most, at once; and of the others, one by one."""
    marks = at_blanks(block)
    width = int(np.bincount(np.diff(marks.bounds)).argmax())
    named = width == _NAMED
    if width < _COLUMNS:
        return [_one_by_one(block.lines())]
    cells, others = take(block, marks, width, (*_USED, _QUEUE_NAME) if named else _USED)
    try:
        numbers = np.stack([cells.column(which).astype(np.float64) for which in range(len(_USED))], axis=1)
    except ValueError:  # some line is a comment, or has a word that is not a number
        return [_one_by_one(block.lines())]
    queues = as_texts(cells.column(len(_USED)), MAX_TEXT) if named else np.full(len(numbers), "", "U1")
    return [_Log(cells.line, numbers, queues), _one_by_one(others)]


def _one_by_one(lines: Iterable[Line]) -> _Log:
    jobs = [(number, line.split()) for number, line in lines if line.strip() and not line.lstrip().startswith(";")]
    return _Log(
        np.array([number for number, _ in jobs], np.int64),
        np.array([_row(words) for _, words in jobs], np.float64).reshape(-1, len(_USED)),
        np.array([words[_QUEUE_NAME][:MAX_TEXT] if len(words) == _NAMED else "" for _, words in jobs], np.str_),
    )


def _row(words: Sequence[str]) -> Sequence[float]:
    """The numbers of a line; NaN where it is broken."""
    try:
        return [float(words[place]) for place in _USED] if len(words) >= _COLUMNS else _BROKEN
    except ValueError:
        return _BROKEN


FORMAT = Format("swf", "Standard Workload Format of the Parallel Workloads Archive (.swf)", sniff, read)
