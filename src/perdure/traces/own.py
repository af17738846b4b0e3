"""Perdure's own form of a trace: every column of a `JobTable`, as CSV or Parquet; `write` makes it, `read` takes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import Attempts, Ending, JobTable
from perdure.traces.columns import NUMBER, TEXT, database, load
from perdure.traces.source import Source
from perdure.traces.texts import mapped
from perdure.traces.trace import Format, Sieve, Trace, gather

_NEEDED = {"job_id": TEXT, "submit_s": NUMBER, "gpus": NUMBER, "duration_s": NUMBER}
_OPTIONAL = {
    "user": TEXT, "vc": TEXT, "gpu_type": TEXT, "ending": TEXT, "attempts": TEXT, "start_s": NUMBER, "end_s": NUMBER,
    "walltime_s": NUMBER, "nodes": NUMBER, "began_s": NUMBER,
}  # fmt: skip
_PASSED, _FAILED = "+", "-"  # an attempt is its seconds and one of these; attempts are set apart by blanks
_SUFFIXES = (".csv", ".csv.gz", ".parquet")


def sniff(head: bytes, _name: str) -> bool:
    return set(map(str.encode, _NEEDED)) <= set(head.split(b"\n", 1)[0].strip().split(b","))


def read(source: Source, skip_bad: bool) -> Trace:
    """Read the form that `write` makes. Only its first four columns are needed: it is the one to make by hand."""
    columns, sieve = load(source, _NEEDED, skip_bad, optional=_OPTIONAL, nothing=("",))
    further: dict[str, Any] = {
        name: columns[name] for name in ("user", "vc", "gpu_type", "start_s", "end_s", "walltime_s") if name in columns
    }
    if "nodes" in columns:
        further["nodes"] = np.nan_to_num(columns["nodes"]).astype(np.int64)
    if "ending" in columns:
        further["ending"] = _endings(sieve, columns["ending"])
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
        attempts=_attempts(sieve, columns["attempts"]) if "attempts" in columns else None,
        **further,
    )


def write(table: JobTable, path: Path | str) -> None:
    """Write a table as ``.csv``, ``.csv.gz`` or ``.parquet``; `perdure.traces.read.read` returns it unchanged.

    Raises `InputError` for another suffix and where the file cannot be written, and `MissingExtra` without DuckDB.
    """
    path = Path(path)
    suffix = next((each for each in _SUFFIXES if path.name.endswith(each)), None)
    if suffix is None:
        raise InputError(str(path), "not a kind of file that can be written", f"End it in {', '.join(_SUFFIXES)}")
    form = "FORMAT parquet" if suffix == ".parquet" else "FORMAT csv, HEADER"
    packed = ", COMPRESSION gzip" if suffix == ".csv.gz" else ""
    target = "'" + str(path).replace("'", "''") + "'"
    with database(lambda what: InputError(str(path), what, "Name a file that you may write")) as db:
        db.register("jobs", _columns(table))
        db.execute(f"COPY (SELECT {_SHOWN} FROM jobs) TO {target} ({form}{packed})")  # noqa: S608


_TIMES = ("submit_s", "duration_s", "start_s", "end_s", "walltime_s")
_SHOWN = ", ".join(
    f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END AS {name}" if name in _TIMES else name
    for name in (*_NEEDED, *_OPTIONAL)
)


def _columns(table: JobTable) -> dict[str, NDArray[Any]]:
    names = {name for name in (*_NEEDED, *_OPTIONAL) if name not in ("attempts", "began_s", "ending")}
    words = np.array([ending.name.lower() for ending in Ending], object)
    return {
        **{name: getattr(table, name) for name in names},
        "ending": words[table.ending],
        "attempts": np.array(_written(table.attempts, len(table)), object),
        "began_s": np.full(len(table), table.began_s),
    }


def _written(attempts: Attempts | None, jobs: int) -> list[str]:
    if attempts is None:
        return [""] * jobs
    pairs = zip(attempts.duration_s.tolist(), attempts.passed.tolist(), strict=True)
    told = [f"{seconds!r}{_PASSED if passed else _FAILED}" for seconds, passed in pairs]
    bounds = attempts.first.tolist()
    return [" ".join(told[begin:end]) for begin, end in pairwise(bounds)]


def _endings(sieve: Sieve, words: NDArray[np.str_]) -> NDArray[np.int8]:
    known = {"": Ending.UNKNOWN, **{ending.name.lower(): ending for ending in Ending}}
    found = mapped(words, lambda word: known.get(word, -1), np.int8)
    mend = f"Use one of: {', '.join(sorted(filter(None, known)))}"
    sieve.bad(found < 0, "the ending is not known", mend, words)
    endings: NDArray[np.int8] = np.maximum(found, 0)
    return endings


def _attempts(sieve: Sieve, texts: NDArray[np.str_]) -> Attempts | None:
    """Attempts of all jobs; None where no job has any."""
    if not (texts != "").any():
        return None
    broken = np.zeros(len(texts), bool)
    parsed: list[Sequence[tuple[float, bool]]] = []
    for row, text in enumerate(texts.tolist()):
        try:
            parsed.append([_attempt(word) for word in text.split()])
        except ValueError:
            broken[row] = True
            parsed.append(())
    sieve.bad(broken, "the attempts are not seconds with + or -", "Write them like 74.5- 193162.0+", texts)
    first = np.concatenate([[0], np.cumsum([len(each) for each in parsed])]).astype(np.int64)
    if not first[-1]:
        return None
    every = [attempt for each in parsed for attempt in each]
    return Attempts(first, np.array([seconds for seconds, _ in every]), np.array([passed for _, passed in every]))


def _attempt(word: str) -> tuple[float, bool]:
    """Read ``74.5-``. Raises `ValueError`."""
    seconds = float(word[:-1])
    if word[-1] not in (_PASSED, _FAILED) or not 0 <= seconds < np.inf:
        raise ValueError(word)
    return seconds, word[-1] == _PASSED


FORMAT = Format("perdure", "Perdure's own (job_id,submit_s,gpus,duration_s,...; CSV or Parquet)", sniff, read)
