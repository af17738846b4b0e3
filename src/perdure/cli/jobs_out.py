"""The file of ``--jobs-out``: when each job started and ended in each run, as CSV or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.model.table import JobTable
from perdure.simulation.sweep import Run

_SUFFIXES = (".csv", ".parquet")
_TELLING = ("trace", "retry", "seed")  # which run a row is of, next to its policy
_FIX = "Name a file that you may write"


def check_jobs_out(path: Path) -> None:
    """Raises `InputError` for a file that cannot be written, before the work is done."""
    if path.suffix not in _SUFFIXES:
        raise InputError(str(path), "not in a format that can be written", f"End it in {' or '.join(_SUFFIXES)}")
    if path.is_dir() or not path.parent.is_dir():
        what = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise InputError(str(path), f"cannot be written ({what})", _FIX)


def write_jobs(path: Path, traces: Sequence[Path], tables: Sequence[JobTable], runs: Sequence[Run]) -> None:
    """Write ``policy,job_id,start,end,preempt,promote``, seconds of the trace, a row for each job of each run.

    Columns ``trace``, ``retry`` and ``seed`` come before these where runs differ in them. Raises `InputError`, and
    `MissingExtra` for Parquet without DuckDB.
    """
    parts = [_columns(traces, tables, run) for run in runs]
    same = {name for name in _TELLING if len(np.unique([part[name][0] for part in parts])) == 1}
    kept = [name for name in parts[0] if name not in same]
    if path.suffix == ".parquet":
        _write_parquet(path, {name: np.concatenate([part[name] for part in parts]) for name in kept})
        return
    try:
        with path.open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(kept)
            for part in parts:
                rows.writerows(zip(*(part[name].tolist() for name in kept), strict=True))
    except OSError as err:
        raise InputError(str(path), f"cannot be written ({err.strerror})", _FIX) from err


def _columns(traces: Sequence[Path], tables: Sequence[JobTable], run: Run) -> dict[str, NDArray[Any]]:
    case, found, table = run.case, run.result, tables[run.case.trace]
    assert found is not None
    n = len(table)
    return {
        "trace": np.full(n, str(traces[case.trace])),
        "retry": np.full(n, case.retry),
        "seed": np.full(n, case.seed),
        "policy": np.full(n, case.policy),
        "job_id": table.job_id,
        "start": _whole(found.start_s),
        "end": _whole(found.end_s),
        "preempt": found.preempted,
        "promote": found.promoted,
    }


def _whole(seconds: NDArray[np.float64]) -> NDArray[Any]:
    """Whole numbers where all are."""
    return seconds.astype(np.int64) if (seconds == np.rint(seconds)).all() else seconds


def _write_parquet(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    from perdure.in_memory_db import duckdb_in_memory

    target = "'" + str(path).replace("'", "''") + "'"
    with duckdb_in_memory("traces", lambda what: InputError(str(path), what, _FIX)) as db:
        db.register("jobs", columns)
        db.execute(f"COPY (SELECT * FROM jobs) TO {target} (FORMAT parquet)")  # noqa: S608
