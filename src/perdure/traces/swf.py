"""The Standard Workload Format of the Parallel Workloads Archive, and files that take after it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import re2
from numpy.typing import NDArray

from perdure.model.table import Ending
from perdure.traces.source import Source
from perdure.traces.trace import Format, Sieve, Trace, gather

# Columns by place, as the archive defines them.
_JOB, _SUBMIT, _WAIT, _RUN, _PROCS, _ASKED, _LIMIT, _STATUS, _USER, _QUEUE = 0, 1, 2, 3, 4, 7, 8, 10, 11, 14
_USED = (_JOB, _SUBMIT, _WAIT, _RUN, _PROCS, _ASKED, _LIMIT, _STATUS, _USER, _QUEUE)
_COLUMNS = 18
_BATCH = 2_000  # lines turned into numbers at a time
_QUEUE_NAME = 19  # of the 21 columns that MetaCentrum writes
_ENDINGS = {0: Ending.FAILED, 1: Ending.PASSED, 5: Ending.KILLED}
_UNIX_START = re2.compile(r";\s*UnixStartTime:\s*(\d{1,12})")
_NUMBER = re2.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_EXACT = 2.0**53  # whole numbers below it are exact
_EPOCH_FROM = 500_000_000.0  # submits beyond this many seconds are an absolute clock


def sniff(head: bytes, _name: str) -> bool:
    """True where the first line that is no comment begins with 18 numbers."""
    for line in head.split(b"\n"):
        if line.strip() and not line.lstrip().startswith(b";"):
            words = line.split()
            return len(words) >= _COLUMNS and all(_NUMBER.fullmatch(word) for word in words[:_COLUMNS])
    return False


def read(source: Source, skip_bad: bool) -> Trace:
    """Read a log, each processor as one GPU: the archive's machines have none, and policies only count.

    -1 is unknown. A job of unknown processors has those it asked for; jobs whose run time or processors nobody knows
    are left out and counted, and so are lines of partial executions (status 2 to 4), which a whole line sums up.
    """
    log = _log(source)
    numbers = log.numbers
    sieve = Sieve(len(numbers), lambda row: source.at_line(int(log.lines[row])), skip_bad)
    broken = np.asarray(np.isnan(numbers).any(axis=1))
    sieve.bad(broken, "the line has fewer than 18 columns or a word that is no number", "Mend the line")
    unknown = numbers == -1
    column = dict(zip(_USED, np.where(unknown, np.nan, numbers).T, strict=True))
    processors = np.where(np.nan_to_num(column[_PROCS]) > 0, column[_PROCS], column[_ASKED])
    sieve.leave_out(np.isin(column[_STATUS], (2, 3, 4)), "a part of a job that another line sums up")
    start_s = column[_SUBMIT] + column[_WAIT]
    # Where the clock is absolute, an unknown end of 0 shows as a run time of minus the start.
    sieve.leave_out(np.isnan(column[_RUN]) | (start_s + column[_RUN] == 0) & (start_s > 0), "the run time is unknown")
    sieve.leave_out(~(processors > 0), "the processors are unknown")
    absolute = bool(len(numbers)) and float(np.nanmin(column[_SUBMIT], initial=np.inf)) > _EPOCH_FROM
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=_whole(column[_JOB]),
        submit_s=column[_SUBMIT],
        gpus=processors,
        duration_s=column[_RUN],
        epoch_s=0.0 if absolute else log.began_s,
        start_s=start_s,
        end_s=start_s + column[_RUN],
        walltime_s=column[_LIMIT],
        user=_whole(column[_USER]),
        vc=log.queues if (log.queues != "").any() else _whole(column[_QUEUE]),
        ending=_endings(column[_STATUS]),
        notes=("each processor counts as one GPU",),
    )


def _whole(numbers: NDArray[np.float64]) -> NDArray[np.str_]:
    """Whole numbers as texts, "" where unknown or too large to be exact."""
    known = np.abs(numbers) < _EXACT
    whole = np.where(known, numbers, 0).astype(np.int64)
    width = max(len(str(whole.max(initial=0))), len(str(whole.min(initial=0))))
    return np.where(known, whole.astype(f"U{width}"), "")


def _endings(status: NDArray[np.float64]) -> NDArray[np.int8]:
    endings = np.full(len(status), Ending.UNKNOWN, np.int8)
    for word, ending in _ENDINGS.items():
        endings[status == word] = ending
    return endings


def _jobs(lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(";"):
            yield number, line


@dataclass(frozen=True, slots=True)
class _Log:
    """The lines of a log that are jobs, one after another."""

    began_s: float | None  # seconds since the epoch
    numbers: NDArray[np.float64]  # shape (n_jobs, 10): the columns that are used; NaN in a broken line
    queues: NDArray[np.str_]  # by name, where the file names them
    lines: NDArray[np.int64]  # their places in the file


def _log(source: Source) -> _Log:
    began = _UNIX_START.search(source.head.decode("utf-8", "replace"))
    blocks, queues, places = [np.empty((0, len(_USED)))], [np.empty(0, "U1")], [np.empty(0, np.int64)]
    with source.text() as text:
        jobs = _jobs(iter(text))
        while batch := list(islice(jobs, _BATCH)):
            block, names = _block([line for _, line in batch])
            blocks.append(block)
            queues.append(names)
            places.append(np.array([number for number, _ in batch], np.int64))
    began_s = float(began[1]) if began else None
    return _Log(began_s, np.concatenate(blocks), np.concatenate(queues), np.concatenate(places))


def _block(lines: list[str]) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """The used columns of some lines, a row of NaN where a line is broken; and their names of queues."""
    width = len(lines[0].split())
    try:
        # Between lines stands a NaN, so that a word too many in one cannot stand in for one too few in the next.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            numbers = np.fromstring(" nan ".join([*lines, ""]), sep=" ").reshape(len(lines), width + 1)
        if width >= _COLUMNS and np.isnan(numbers[:, -1]).all():
            return numbers[:, _USED], np.full(len(lines), "", "U1")
    except (ValueError, DeprecationWarning):
        pass  # some line is of another form: each is read by itself
    words = [line.split() for line in lines]
    return np.array([_row(row) for row in words]), np.array([_queue(row) for row in words])


def _queue(words: list[str]) -> str:
    return words[_QUEUE_NAME] if len(words) == 21 else ""


def _row(words: list[str]) -> list[float]:
    try:
        if len(words) < _COLUMNS:
            raise ValueError("cut off")
        return [float(words[place]) for place in _USED]
    except ValueError:
        return [np.nan] * len(_USED)


FORMAT = Format("swf", "Standard Workload Format of the Parallel Workloads Archive (.swf)", sniff, read)
