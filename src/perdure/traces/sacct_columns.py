"""Records of ``sacct --parsable2`` as columns, whole lines at a time where no user wrote into them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.traces.cells import MAX_CELL_BYTES, Bytes, as_texts, at_each, below_header, take
from perdure.traces.sacct_records import Layout, Record, RecordJoiner
from perdure.traces.slurm_cells import counts, cpus_and_mem_held, gpus_held, instants, seconds
from perdure.traces.source import TraceSource
from perdure.traces.texts import coded

EXPORT = (
    "Export with TZ=UTC sacct --allusers --duplicates --parsable2"
    " --format=JobID,User,Account,Partition,Submit,Start,ElapsedRaw,TimelimitRaw,State,ExitCode,NNodes,AllocTRES,"
    "ReqTRES"
)
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
    "exit": ("ExitCode",),
    "nodes": ("NNodes", "AllocNodes", "ReqNodes"),
    "partition": ("Partition",),
    "qos": ("QOS",),
    "cpus": ("ReqCPUS", "NCPUS", "AllocCPUS"),
    "eligible": ("Eligible",),
}
_WIDEST = 128  # characters of a text that is kept
_MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Records:
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
    exit_code: Bytes  # "1:0": code and signal
    user: NDArray[np.str_]
    vc: NDArray[np.str_]
    partition: NDArray[np.str_]
    qos: NDArray[np.str_]
    cpus: NDArray[np.int64]
    mem_mib: NDArray[np.int64]
    eligible_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.line)

    @classmethod
    def of(cls, source: TraceSource) -> Records:
        """Read all records of a file. Raises `InputError` where a column that is needed is missing."""
        layout = Layout.of(source.head.decode("utf-8-sig", "replace").split("\n", 1)[0])
        parts = list(_parts(source, layout, _places(source, layout)))
        columns = {name: [getattr(part, name) for part in parts] for name in cls.__slots__}
        del parts
        line = np.concatenate(columns["line"])
        order = slice(None) if (np.diff(line) > 0).all() else np.argsort(line)
        # One column after another, and its parts are dropped: at no time is everything there twice.
        return cls(**{name: np.concatenate(columns.pop(name))[order] for name in cls.__slots__})


def _places(source: TraceSource, layout: Layout) -> dict[str, int]:
    """Which column holds what, as far as the file has it."""
    places = {role: layout.place(names) for role, names in _NEEDED.items()}
    if missing := [_NEEDED[role][0] for role, place in places.items() if place is None]:
        raise InputError(source.at_line(1), f"no column {', '.join(missing)}", EXPORT)
    places |= {role: layout.place(names) for role, names in _EXTRAS.items()}
    return {role: place for role, place in places.items() if place is not None}


def _parts(source: TraceSource, layout: Layout, places: Mapping[str, int]) -> Iterator[Records]:
    """The records of a block at a time: those that are whole lines, then those that were put together."""
    limit_s = _MINUTE_S if "TimelimitRaw" in layout.columns else 1
    joiner = RecordJoiner(layout)
    yield _columns(np.empty(0, np.int64), {}, limit_s)
    for block in below_header(source):
        marks = at_each(layout.separator.encode(), block)
        cells, others = take(block, marks, len(layout.columns), list(places.values()))
        yield _columns(cells.line, {role: cells.column(which) for which, role in enumerate(places)}, limit_s)
        yield from _put_together(joiner.records(others), places, limit_s)
    yield from _put_together(joiner.rest(), places, limit_s)


def _put_together(records: Iterable[Record], places: Mapping[str, int], limit_s: int) -> Iterator[Records]:
    found = [(line, None if fields is None else [fields[place].encode() for place in places.values()])
             for line, fields in records]  # fmt: skip
    if not found:
        return
    known = [cells is not None and max(map(len, cells)) <= MAX_CELL_BYTES for _, cells in found]
    blank = [b""] * len(places)
    rows = [cells if good and cells else blank for (_, cells), good in zip(found, known, strict=True)]
    columns = {role: np.array(column, np.bytes_) for role, column in zip(places, zip(*rows, strict=True), strict=True)}
    yield _columns(np.array([line for line, _ in found], np.int64), columns, limit_s, ~np.array(known, bool))


def _columns(
    line: NDArray[np.int64], cells: Mapping[str, Bytes], limit_s: int, broken: NDArray[np.bool_] | None = None
) -> Records:
    """The meaning of cells, which are blank in a broken record; `limit_s` is the unit of a limit in plain numbers."""
    blank: Bytes = np.zeros(len(line), "S1")
    job_id, tres, asked = (cells.get(role, blank) for role in ("id", "tres", "asked"))
    tres = np.where(tres == b"", asked, tres) if (tres == b"").any() else tres
    held, kinds = gpus_held(tres)
    cpus, mem_mib = cpus_and_mem_held(tres)
    state, elapsed_s = _first_words(cells.get("state", blank)), seconds(cells.get("elapsed", blank), 1)
    never_ran = (state == "NODE_FAIL") & (elapsed_s == 0)  # put back before the launch: it names the next node (22.05)
    return Records(
        line=line,
        broken=np.zeros(len(line), bool) if broken is None else broken,
        is_step=(job_id.view(np.uint8).reshape(len(line), job_id.itemsize) == ord(".")).any(axis=1),
        job_id=as_texts(job_id, _WIDEST),
        submit_s=instants(cells.get("submit", blank)),
        start_s=np.where(never_ran, np.nan, instants(cells.get("start", blank))),
        elapsed_s=elapsed_s,
        limit_s=seconds(cells.get("limit", blank), limit_s),
        state=state,
        gpus=held,
        gpu_type=kinds,
        nodes=counts(cells.get("nodes", blank)),
        exit_code=cells.get("exit", blank),
        user=as_texts(cells.get("user", blank), _WIDEST),
        vc=as_texts(cells.get("vc", blank), _WIDEST),
        partition=as_texts(cells.get("partition", blank), _WIDEST),
        qos=as_texts(cells.get("qos", blank), _WIDEST),
        cpus=counts(cells["cpus"]) if "cpus" in cells else cpus,
        mem_mib=mem_mib,
        eligible_s=instants(cells.get("eligible", blank)),
    )


def _first_words(cells: Bytes) -> NDArray[np.str_]:
    """``CANCELLED`` of "CANCELLED by 1000"."""
    distinct, codes = coded(cells)
    words = [text.decode("utf-8", "replace").split(" ", 1)[0][:_WIDEST] for text in distinct]
    return np.array(words, np.str_)[codes]
