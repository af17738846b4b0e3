"""Perdure's own form of a trace: every column of a `JobTable`, as CSV or Parquet; `write` makes it, `read` takes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.in_memory_db import duckdb_in_memory
from perdure.model.table import Attempts, JobTable, TableEnding
from perdure.traces.columns import LONG_TEXT, NUMBER, TEXT, load
from perdure.traces.source import TraceSource
from perdure.traces.texts import mapped
from perdure.traces.trace import MAX_S, Format, Sieve, Trace, gather, whole_counts

_NEEDED = {"job_id": TEXT, "submit_s": NUMBER, "gpus": NUMBER, "duration_s": NUMBER}
_OPTIONAL = {
    "user": TEXT, "vc": TEXT, "gpu_type": TEXT, "ending": TEXT, "attempts": LONG_TEXT, "start_s": NUMBER,
    "end_s": NUMBER, "walltime_s": NUMBER, "nodes": NUMBER, "began_s": NUMBER, "partition": TEXT, "account": TEXT,
    "qos": TEXT, "nice": NUMBER, "cpus": NUMBER, "mem_mib": NUMBER, "eligible_s": NUMBER, "dependency": TEXT,
    "preempted": NUMBER,
}  # fmt: skip
_AS_THEY_ARE = (
    "user", "vc", "gpu_type", "start_s", "end_s", "walltime_s", "partition", "account", "qos", "eligible_s",
    "dependency",
)  # fmt: skip
_COUNTS = "nodes", "cpus", "mem_mib", "preempted"
_NICEST = 2**31 - 1  # as in Slurm
_SIGNS = _PASSED, _FAILED = "+", "-"  # an attempt is its seconds and one of these; attempts are set apart by blanks
_FORMS = {
    ".csv": "FORMAT csv, HEADER", ".csv.gz": "FORMAT csv, HEADER, COMPRESSION gzip", ".parquet": "FORMAT parquet",
}  # fmt: skip
_WRITABLE = "Name a file that you may write"


def sniff(head: bytes, _name: str) -> bool:
    """True where at most one of the needed columns is missing: then `read` says which."""
    named = {name.strip(b' "\r') for name in head.split(b"\n", 1)[0].removeprefix(b"\xef\xbb\xbf").split(b",")}
    return len(named.intersection(map(str.encode, _NEEDED))) >= len(_NEEDED) - 1


def read(source: TraceSource, skip_bad: bool) -> Trace:
    """Read the form that `write` makes. Only its first four columns are needed: it is the one to make by hand."""
    columns, sieve = load(source, _NEEDED, skip_bad, optional=_OPTIONAL, nothing=("",))
    further: dict[str, Any] = {name: columns[name] for name in _AS_THEY_ARE if name in columns}
    further |= {name: whole_counts(columns[name]) for name in _COUNTS if name in columns}
    if "nice" in columns:
        further["nice"] = np.nan_to_num(np.clip(columns["nice"], -_NICEST, _NICEST)).astype(np.int64)
    if "ending" in columns:
        further["ending"] = _endings(sieve, columns["ending"])
    attempts = _attempts(sieve, columns["attempts"], columns["duration_s"]) if "attempts" in columns else None
    if "start_s" in columns and "end_s" in columns:
        sieve.bad(columns["end_s"] < columns["start_s"], "the end is before the start", "Fix the times")
    began = columns.get("began_s", np.zeros(1))
    return gather(
        source,
        FORMAT.name,
        sieve,
        job_id=columns["job_id"],
        submit_s=columns["submit_s"],
        gpus=columns["gpus"],
        duration_s=columns["duration_s"],
        epoch_s=float(began[0]) if len(began) and np.isfinite(began[0]) else 0.0,
        origin_s=0.0,
        attempts=attempts,
        **further,
    )


def write(table: JobTable, path: Path | str) -> None:
    """Write a table as ``.csv``, ``.csv.gz`` or ``.parquet``; `perdure.traces.read.read` returns it unchanged.

    Raises what `check_path` does, `InputError` where the file cannot be written, and `MissingExtra` without DuckDB.
    """
    form = check_path(path)
    target = "'" + str(path).replace("'", "''") + "'"
    with duckdb_in_memory("traces", lambda what: InputError(str(path), what, _WRITABLE)) as db:
        db.register("jobs", _columns(table))
        db.execute(f"COPY (SELECT {_shown(table)} FROM jobs) TO {target} ({form})")  # noqa: S608


def check_path(path: Path | str) -> str:
    """How DuckDB is to write such a file. Raises `InputError` for another suffix and a folder that is not there."""
    path = Path(path)
    form = next((form for suffix, form in _FORMS.items() if path.name.endswith(suffix)), None)
    if form is None:
        raise InputError(str(path), "not in a format that can be written", f"End it in {', '.join(_FORMS)}")
    if not path.parent.is_dir():
        raise InputError(str(path), f"cannot be written (there is no folder {path.parent})", _WRITABLE)
    return form


_TIMES = ("submit_s", "duration_s", "start_s", "end_s", "walltime_s", "eligible_s")
_MADE = ("attempts", "began_s", "ending")  # columns that are not those of the table


def _told(table: JobTable) -> list[str]:
    return [name for name in (*_NEEDED, *_OPTIONAL) if name in _MADE or table.tells(name)]


def _shown(table: JobTable) -> str:
    return ", ".join(
        f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END AS {name}" if name in _TIMES else name
        for name in _told(table)
    )


def _columns(table: JobTable) -> dict[str, NDArray[Any]]:
    words = np.array([ending.name.lower() for ending in TableEnding], object)
    return {
        **{name: getattr(table, name) for name in _told(table) if name not in _MADE},
        "ending": words[table.ending],
        "attempts": np.array(_written(table), object),
        "began_s": np.full(len(table), table.began_s),
    }


def _written(table: JobTable) -> list[str]:
    if table.attempts is None:
        return [""] * len(table)
    signs = [_PASSED if passed else _FAILED for passed in table.attempts.passed.tolist()]
    tried_s, bounds = table.attempts.duration_s.tolist(), table.attempts.first.tolist()
    cells = []
    for whole_s, (begin, end) in zip(table.duration_s.tolist(), pairwise(bounds), strict=True):
        if end == begin + 1 and tried_s[begin] == whole_s:
            cells.append(signs[begin])
        else:
            cells.append(" ".join(f"{tried_s[at]!r}{signs[at]}" for at in range(begin, end)))
    return cells


def _endings(sieve: Sieve, words: NDArray[np.str_]) -> NDArray[np.int8]:
    known = {"": TableEnding.UNKNOWN, **{ending.name.lower(): ending for ending in TableEnding}}
    found = mapped(words, lambda word: known.get(word, -1), np.int8)
    fix = f"Use one of: {', '.join(sorted(filter(None, known)))}"
    sieve.bad(found < 0, "the ending is not known", fix, words)
    endings: NDArray[np.int8] = np.maximum(found, 0)
    return endings


def _attempts(sieve: Sieve, texts: NDArray[np.object_], duration_s: NDArray[np.float64]) -> Attempts | None:
    """Attempts of all jobs; None where no job has any. A sign alone is one attempt of the whole duration."""
    if not (texts != "").any():
        return None
    passed = texts == _PASSED
    alone = passed | (texts == _FAILED)
    others = np.flatnonzero(~alone)
    rows = [text.split() for text in texts[others].tolist()]
    readable = np.array([_readable(row) for row in rows], bool)
    broken = np.zeros(len(texts), bool)
    broken[others] = ~readable
    sieve.bad(broken, "the attempts are not seconds with + or -", "Write them like 74.5- 193162.0+", texts)
    words = [word for row, good in zip(rows, readable.tolist(), strict=True) if good for word in row]
    counts = alone.astype(np.int64)
    counts[others] = [len(row) if good else 0 for row, good in zip(rows, readable.tolist(), strict=True)]
    first = np.concatenate([[0], np.cumsum(counts)])
    whole = np.zeros(first[-1], bool)  # attempts that are a sign alone
    whole[first[:-1][alone]] = True
    seconds, ok = np.empty(len(whole)), np.empty(len(whole), bool)
    seconds[whole], ok[whole] = duration_s[alone], passed[alone]
    seconds[~whole], ok[~whole] = _seconds(words), [word[-1] == _PASSED for word in words]
    return Attempts(first, seconds, ok)


def _readable(words: Sequence[str]) -> bool:
    try:
        return all(word[-1] in _SIGNS and 0 <= float(word[:-1]) <= MAX_S for word in words)
    except ValueError:
        return False


def _seconds(words: Sequence[str]) -> NDArray[np.float64]:
    """Seconds of texts like ``74.5-``. Raises `ValueError`."""
    return np.array([float(word[:-1]) for word in words], np.float64)


FORMAT = Format("perdure", "Perdure's own (job_id,submit_s,gpus,duration_s,...; CSV or Parquet)", sniff, read)
