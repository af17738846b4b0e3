"""Slurm's accounting as text: ``sacct --parsable2``, of any columns that hold the ones that are needed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import Attempts, Ending
from perdure.traces.endings import slurm_endings
from perdure.traces.sacct_records import Layout, Record, records
from perdure.traces.slurm_words import UNLIMITED, duration_s, gpus
from perdure.traces.source import Source
from perdure.traces.trace import NEVER_STARTED, NO_GPUS, Format, Sieve, Trace, gather

EXPORT = (
    "Export with TZ=UTC sacct --allusers --duplicates --parsable2"
    " --format=JobID,User,Account,Partition,Submit,Start,ElapsedRaw,TimelimitRaw,State,NNodes,AllocTRES,ReqTRES"
)
STEPS = "steps of jobs"
UNFINISHED = "not ended yet"
_NEEDED: Mapping[str, tuple[str, ...]] = {  # what is needed -> the columns that tell it, the best first
    "id": ("JobID",),
    "submit": ("Submit",),
    "start": ("Start",),
    "elapsed": ("ElapsedRaw", "Elapsed"),
    "state": ("State",),
    "tres": ("AllocTRES", "ReqTRES"),
}
_EXTRAS: Mapping[str, tuple[str, ...]] = {  # likewise, for what may be missing
    "asked": ("ReqTRES",),
    "user": ("User",),
    "vc": ("Account", "Partition"),
    "limit": ("TimelimitRaw", "Timelimit"),
    "nodes": ("NNodes", "AllocNodes", "ReqNodes"),
}
_BATCH = 2_000  # records turned into arrays at a time: few, for many small objects at once are slow to keep
_WIDEST = 128  # characters of a text that is kept
_MAX_LINES = 1000  # of one record; more is a file of another form


def sniff(head: bytes, _name: str) -> bool:
    header = head.split(b"\n", 1)[0].replace(b"|#", b"|").strip().split(b"|")
    return b"JobID" in header and b"State" in header


def read(source: Source, skip_bad: bool) -> Trace:
    """Read the GPU jobs that have ended. Several records of one job id (``--duplicates``) are its attempts.

    Steps, jobs without GPUs, jobs that never started and jobs that have not ended are left out and counted. An
    account is a virtual cluster; without that column it is the partition. Times are read as UTC.
    """
    seen = _records(source)
    sieve = Sieve(len(seen), lambda row: source.at_line(int(seen.line[row])), skip_bad)
    sieve.leave_out(seen.is_step, STEPS)
    sieve.bad(seen.broken, "the record has not as many columns as the header", EXPORT)
    sieve.leave_out(np.isnan(seen.start_s) | np.isin(seen.state, ("PENDING", "REQUEUE_HOLD")), NEVER_STARTED)
    sieve.leave_out(np.isin(seen.state, ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING")), UNFINISHED)
    sieve.leave_out(seen.gpus == 0, NO_GPUS)
    sieve.bad(np.isnan(seen.elapsed_s), "the elapsed time is missing or no time", EXPORT)
    sieve.bad(np.isnan(seen.submit_s), "the submit time is missing or no time", EXPORT)
    sieve.bad(_repeated(seen, sieve.kept), "the record was there before", "Export it once", seen.job_id)
    return _jobs(source, seen, sieve)


@dataclass(frozen=True, slots=True)
class _Records:
    """Records of a file as columns of one length; times are seconds since the epoch, NaN where unknown."""

    line: NDArray[np.int64]
    broken: NDArray[np.bool_]
    is_step: NDArray[np.bool_]
    job_id: NDArray[np.str_]
    submit_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    elapsed_s: NDArray[np.float64]
    limit_s: NDArray[np.float64]
    state: NDArray[np.str_]
    gpus: NDArray[np.float64]
    gpu_type: NDArray[np.str_]
    nodes: NDArray[np.int64]
    user: NDArray[np.str_]
    vc: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.line)


def _records(source: Source) -> _Records:
    layout = Layout.of(source.head.decode("utf-8-sig", "replace").split("\n", 1)[0])
    places = {role: layout.place(names) for role, names in _NEEDED.items()}
    if missing := [_NEEDED[role][0] for role, place in places.items() if place is None]:
        raise InputError(source.at_line(1), f"no column {', '.join(missing)}", EXPORT)
    places |= {role: layout.place(names) for role, names in _EXTRAS.items()}
    with source.text() as text:
        lines = iter(text)
        next(lines, None)
        found = records(lines, layout)
        batches = [_batch(batch, layout, places) for batch in iter(lambda: list(islice(found, _BATCH)), [])]
    if not batches:
        batches = [_batch([], layout, places)]
    names = _Records.__slots__
    return _Records(*(np.concatenate([getattr(batch, name) for batch in batches]) for name in names))


def _batch(batch: Sequence[Record], layout: Layout, places: Mapping[str, int | None]) -> _Records:
    blank = [""] * len(layout.columns)
    told = {role: place for role, place in places.items() if place is not None}
    of = itemgetter(*told.values())
    columns = dict(zip(told, zip(*(of(fields or blank) for _, fields in batch), strict=True), strict=bool(batch)))

    def column(role: str) -> Sequence[str]:
        return columns.get(role) or [""] * len(batch)

    job_id, tres, limit = column("id"), zip(column("tres"), column("asked"), strict=True), places["limit"]
    counted = [gpus(held) if held else gpus(asked) for held, asked in tres]
    minutes = limit is not None and layout.columns[limit] == "TimelimitRaw"
    return _Records(
        line=np.array([line for line, _ in batch], np.int64),
        broken=np.array([fields is None for _, fields in batch], bool),
        is_step=np.array(["." in text for text in job_id], bool),
        job_id=_texts(job_id),
        submit_s=_instants(column("submit")),
        start_s=_instants(column("start")),
        elapsed_s=_seconds(column("elapsed"), 1),
        limit_s=_seconds(column("limit"), 60 if minutes else 1),
        state=_texts([text.split(" ", 1)[0] for text in column("state")]),
        gpus=np.array([count for count, _ in counted], np.float64),
        gpu_type=_texts([kind for _, kind in counted]),
        nodes=np.array([int(text) if text.isdecimal() and len(text) < 10 else 0 for text in column("nodes")], np.int64),
        user=_texts(column("user")),
        vc=_texts(column("vc")),
    )


def _texts(values: Sequence[str]) -> NDArray[np.str_]:
    return np.array([value[:_WIDEST] for value in values], np.str_)


def _instants(texts: Sequence[str]) -> NDArray[np.float64]:
    """Seconds since the epoch of ``2021-01-06T14:09:15`` and of plain seconds; NaN where unknown or no time."""
    plain = [text if len(text) == 19 and text[10] == "T" else "NaT" for text in texts]
    try:
        times = _parsed(plain)
    except ValueError:
        times = np.array([_instant(text) for text in plain], "M8[s]")
    seconds = np.where(np.isnat(times), np.nan, times.astype(np.int64))
    for row in np.flatnonzero(np.isnat(times)).tolist():
        if texts[row].isdecimal() and len(texts[row]) < 12:
            seconds[row] = float(texts[row])
    return seconds


def _instant(text: str) -> np.datetime64:
    try:
        return np.datetime64(_parsed([text])[0])
    except ValueError:
        return np.datetime64("NaT", "s")


def _parsed(texts: Sequence[str]) -> NDArray[np.datetime64]:
    """Times as NumPy reads them. Raises `ValueError`, for a time with a zone too: NumPy would only warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.array(texts, "M8[s]")
        except UserWarning as err:
            raise ValueError(str(err)) from err


def _seconds(texts: Sequence[str], unit_s: int) -> NDArray[np.float64]:
    """Durations, or plain numbers of units; NaN where there is none."""
    try:
        return np.array(texts, np.float64) * unit_s
    except ValueError:
        return np.array([_one_duration(text, unit_s) for text in texts], np.float64)


def _one_duration(text: str, unit_s: int) -> float:
    if text.isdecimal() and len(text) < 12:
        return float(int(text) * unit_s)
    if text in UNLIMITED:
        return np.nan
    try:
        return duration_s(text)
    except ValueError:
        return np.nan


def _repeated(seen: _Records, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True for a record of the same job and start as one before it."""
    order = np.lexsort((seen.line, seen.start_s, seen.job_id))
    order = order[kept[order]]
    repeated = np.zeros(len(seen), bool)
    repeated[order[1:]] = (seen.job_id[order[1:]] == seen.job_id[order[:-1]]) & (
        seen.start_s[order[1:]] == seen.start_s[order[:-1]]
    )
    return repeated


def _jobs(source: Source, seen: _Records, sieve: Sieve) -> Trace:
    """One row a job: what it asked for is in its last record, its submit in its first."""
    rows = np.flatnonzero(sieve.kept)
    order = rows[np.lexsort((seen.line[rows], seen.start_s[rows], seen.job_id[rows]))]
    begins = np.flatnonzero(np.concatenate([[True], seen.job_id[order[1:]] != seen.job_id[order[:-1]]]))
    if not len(order):
        begins = np.empty(0, np.int64)
    bounds = np.concatenate([begins, [len(order)]]).astype(np.int64)
    head, tail = order[bounds[:-1]], order[bounds[1:] - 1]
    elapsed = seen.elapsed_s[order]
    ending = slurm_endings(seen.state[order])
    jobs = Sieve(len(head), lambda row: source.at_line(int(seen.line[head[row]])), sieve.skip_bad)
    jobs.left_out = sieve.left_out
    requeued = len(order) - len(head)
    notes = ["times are read as UTC: a local clock's change shows as an hour"]
    if requeued:
        notes.append(f"{requeued} records are further attempts of jobs that were put back")
    return gather(
        source,
        FORMAT.name,
        jobs,
        job_id=seen.job_id[head],
        submit_s=seen.submit_s[head],
        gpus=seen.gpus[tail],
        duration_s=np.add.reduceat(elapsed, begins) if len(order) else np.empty(0),
        epoch_s=0.0,
        attempts=Attempts(bounds, elapsed, ending == Ending.PASSED),
        notes=tuple(notes),
        start_s=seen.start_s[head],
        end_s=seen.start_s[tail] + seen.elapsed_s[tail],
        walltime_s=seen.limit_s[tail],
        user=seen.user[tail],
        vc=seen.vc[tail],
        nodes=seen.nodes[tail],
        gpu_type=seen.gpu_type[tail],
        ending=ending[bounds[1:] - 1],
    )


FORMAT = Format("sacct", "Slurm accounting text (sacct --parsable2)", sniff, read)
