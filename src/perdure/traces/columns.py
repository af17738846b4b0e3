"""Columns of a CSV or Parquet file as arrays, read by DuckDB; broken rows are named by their line.

A small CSV file without anything unusual is read here: loading DuckDB takes longer than reading it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.in_memory_db import duckdb_in_memory
from perdure.traces.source import GZIP, TraceSource, open_source, too_large
from perdure.traces.trace import Sieve, or_skip

if TYPE_CHECKING:
    import duckdb

MAX_TEXT = 128  # characters of an id, a user or a virtual cluster; a column is as wide as its longest text
_NUMBER_BYTES = 8
_SMALL_BYTES = 1 << 20  # larger files are read by DuckDB, which takes 0.2 s to load
_EMPTY = '""'  # a quoted text of no letters
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?", re.ASCII)
_QUOTE = "UNQUOTED VALUE"  # DuckDB's word for a quote that is never closed, or closed within a value
_GLOB = {ord(letter): f"[{letter}]" for letter in "*?["}


class ColumnKind(Enum):
    """What a column holds. Nothing and "None" are "" of a text and NaN of all others."""

    TEXT = "text"
    LONG_TEXT = "long text"  # of any length: stays a column of objects
    NUMBER = "number"
    INSTANT = "instant"  # read as seconds since the epoch, as if the clock showed UTC


TEXT, LONG_TEXT, NUMBER, INSTANT = ColumnKind
_TYPES = {TEXT: "VARCHAR", LONG_TEXT: "VARCHAR", NUMBER: "DOUBLE", INSTANT: "TIMESTAMP"}
_WORDS = {"VARCHAR": "a text", "DOUBLE": "a number", "TIMESTAMP": "a time like 2017-10-09 07:01:55"}


def load(
    source: TraceSource,
    wanted: Mapping[str, ColumnKind],
    skip_bad: bool | None,
    *,
    optional: Mapping[str, ColumnKind] | None = None,
    nothing: tuple[str, ...] = ("", "None"),
) -> tuple[dict[str, NDArray[Any]], Sieve]:
    """The wanted columns in the order of the file, one array each, and the sieve of its rows.

    Columns of `optional` that the file lacks are missing in the answer. Raises `InputError` for a column that is
    missing, for a file that is cut off, and for the first row that cannot be read, unless `skip_bad` (as of `Sieve`).
    """
    if missing := [name for name in wanted if name not in source.header]:
        raise InputError(source.at_line(1), f"no column {', '.join(missing)}", f"It needs: {', '.join(wanted)}")
    if twice := [name for name in (*wanted, *(optional or ())) if source.header.count(name) > 1]:
        raise InputError(source.at_line(1), f"column {twice[0]} comes twice", "Name each column once")
    kinds = {**wanted, **{name: kind for name, kind in (optional or {}).items() if name in source.header}}
    if source.parquet:
        columns, rejected = _from_parquet(source, kinds), 0
    elif (found := _from_plain_csv(source, kinds, nothing)) is not None:
        columns, rejected = found, 0
    else:
        columns, rejected = _from_csv(source, kinds, nothing, skip_bad)
    rows = len(next(iter(columns.values())))
    sieve = Sieve(rows, source.at_row, skip_bad)
    sieve.leave_out(np.zeros(rows, bool), "the row cannot be read", rejected)
    for name, kind in kinds.items():
        if kind is TEXT:
            columns[name] = _text(sieve, name, columns[name])
        elif kind is not LONG_TEXT:
            values = columns[name]
            columns[name] = values if type(values) is np.ndarray else np.ma.filled(values, np.nan)
    return columns, sieve


def _text(sieve: Sieve, name: str, values: NDArray[np.object_]) -> NDArray[np.str_]:
    listed = values.tolist()
    if max(map(len, listed), default=0) > MAX_TEXT:
        long = np.fromiter((len(value) > MAX_TEXT for value in listed), bool, len(listed))
        sieve.bad(long, f"{name} has more than {MAX_TEXT} characters", "Shorten it")
        listed = ["" if len(value) > MAX_TEXT else value for value in listed]
    return np.array(listed, np.str_)


def _select(kinds: Mapping[str, ColumnKind], columns: Mapping[str, str]) -> str:
    def one(name: str, kind: ColumnKind) -> str:
        match kind:
            case ColumnKind.TEXT | ColumnKind.LONG_TEXT:
                return f"coalesce({columns[name]}, '')"
            case ColumnKind.INSTANT:
                return f"epoch({columns[name]})"
            case ColumnKind.NUMBER:
                return columns[name]

    return ", ".join(f"{one(name, kind)} AS w{place}" for place, (name, kind) in enumerate(kinds.items()))


def _from_plain_csv(
    source: TraceSource, kinds: Mapping[str, ColumnKind], nothing: tuple[str, ...]
) -> dict[str, NDArray[Any]] | None:
    """The columns of a small file of plain rows; None for all else, which DuckDB is to read or to refuse."""
    if source.packing or source.names or INSTANT in kinds.values():
        return None
    try:
        if source.path.stat().st_size > _SMALL_BYTES:
            return None
        lines = source.path.read_bytes().decode("ascii").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        return None
    if not all(line and line.isprintable() for line in lines):
        return None
    header, rows = source.header, [line.split(",") for line in lines]
    if any(len(row) != len(header) for row in rows) or rows[0] != header:
        return None
    if any(
        '"' in word and word != _EMPTY for line, row in zip(lines, rows, strict=True) if '"' in line for word in row
    ):
        return None
    columns: dict[str, NDArray[Any]] = {}
    for name, kind in kinds.items():
        place = header.index(name)
        words = ["" if row[place] in nothing else row[place] for row in rows[1:]]
        if kind is not NUMBER:
            columns[name] = np.array(["" if word == _EMPTY else word for word in words], object)
        elif all(word == "" or _PLAIN_NUMBER.fullmatch(word) for word in words):
            columns[name] = np.array([float(word or "nan") for word in words], np.float64)
        else:
            return None
    return columns


def _from_csv(
    source: TraceSource, kinds: Mapping[str, ColumnKind], nothing: tuple[str, ...], skip_bad: bool | None
) -> tuple[dict[str, NDArray[Any]], int]:
    header = source.header
    types = {f"c{place}": _TYPES[kinds.get(name, TEXT)] for place, name in enumerate(header)}
    names = {name: f"c{place}" for place, name in reversed(list(enumerate(header)))}
    # Names of columns are ours (c0, c1, ...), so nothing of the file becomes a part of the statement.
    has_header = not source.names
    query = f"""SELECT {_select(kinds, names)} FROM read_csv(?, columns={types}, header={has_header},
        auto_detect=false, delim=',', quote='"', escape='"', nullstr=?, store_rejects=true, compression=?)"""  # noqa: S608
    packed = "gzip" if source.packing == GZIP else "none"
    with source.unpacked() as path, duckdb_in_memory("traces", source.damaged) as db:
        found = db.execute(query, [str(path).translate(_GLOB), list(nothing), packed]).fetchnumpy()
        rejects = db.execute(
            "SELECT line, column_name, error_type, error_message FROM reject_errors ORDER BY line"
        ).fetchall()
    if rejects and not skip_bad:
        raise _refusal(source, dict(zip(types, header, strict=True)), types, rejects[0], skip_bad)
    arrays = {name: found[f"w{place}"] for place, name in enumerate(kinds)}
    rejected = len({line for line, *_ in rejects})
    quotes = [line for line, _, trouble, _ in rejects if trouble == _QUOTE]
    if quotes and len(found["w0"]) + rejected < _filled_lines(source) - has_header:
        what = "a quote is opened and not closed, so that the rows behind it cannot be told apart"
        raise InputError(source.at_line(quotes[-1]), what, "Fix the row")
    return arrays, rejected


def _filled_lines(source: TraceSource) -> int:
    with source.text() as lines:
        return sum(1 for line in lines if line.strip())


def _refusal(
    source: TraceSource, names: Mapping[str, str], types: Mapping[str, str], reject: Any, skip_bad: bool | None
) -> InputError:
    line, column, trouble, said = reject
    match trouble:
        case "CAST":
            what = f"{names[column]} is not {_WORDS[types[column]]}"
        case "MISSING COLUMNS" | "TOO MANY COLUMNS":
            what = f"the row is cut off or has columns too many ({said.splitlines()[0]})"
        case _:
            what = f"the row cannot be read: {trouble.lower()}"
    return InputError(source.at_line(line), what, or_skip("Fix the row", skip_bad))


def _from_parquet(source: TraceSource, kinds: Mapping[str, ColumnKind]) -> dict[str, NDArray[Any]]:
    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    columns = {name: f"try_cast({quoted(name)} AS {_TYPES[kind]})" for name, kind in kinds.items()}
    query = f"SELECT {_select(kinds, columns)} FROM read_parquet(?)"  # noqa: S608
    with duckdb_in_memory("traces", source.damaged) as db:
        found = db.execute(query, [str(source.path).translate(_GLOB)]).fetchnumpy()
    return {name: found[f"w{place}"] for place, name in enumerate(kinds)}


def look(path: Path | str, most_bytes: int | None = None) -> TraceSource:
    """Look at a file; of a Parquet file the column names stand for the first bytes.

    Raises `InputError`, also for a file that unpacks to more than `most_bytes`.
    """
    source = open_source(path, most_bytes)
    if not source.parquet:
        return source
    with duckdb_in_memory("traces", source.damaged) as db:
        db.execute("SELECT * FROM read_parquet(?) LIMIT 0", [str(path).translate(_GLOB)])
        names = [column[0] for column in db.description or ()]
        if most_bytes is not None:
            _check_rows(db, source.path, len(names), most_bytes)
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(names)
    return replace(source, head=header.getvalue().encode())


def _check_rows(db: duckdb.DuckDBPyConnection, path: Path, columns: int, most_bytes: int) -> None:
    """A value of a Parquet file may take no room in it, but takes a number's when read. Raises `InputError`."""
    ask = "SELECT coalesce(sum(num_rows), 0) FROM parquet_file_metadata(?)"
    (rows,) = db.execute(ask, [str(path).translate(_GLOB)]).fetchall()[0]
    if rows * columns * _NUMBER_BYTES > most_bytes:
        raise too_large(path, most_bytes)
