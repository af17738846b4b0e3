"""Windows from Parquet files: ``path``, ``components`` (a list of ids), ``n``, ``e``; and ``component``, ``tier``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.blame.window import MOST_ENTRIES, Window, window
from perdure.errors import InputError
from perdure.in_memory_db import duckdb_in_memory

if TYPE_CHECKING:
    import duckdb

PATHS_SUFFIX, COMPONENTS_SUFFIX = ".paths.parquet", ".components.parquet"
_NUMBER = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE)")
_KINDS = {
    "number": ("whole numbers", _NUMBER),
    "list": ("lists of whole numbers", re.compile(_NUMBER.pattern + r"\[\d*\]")),
    "text": ("texts", re.compile(r"VARCHAR|ENUM.*")),
}
_PATHS = {"path": "number", "components": "list", "n": "number", "e": "number"}
_COMPONENTS = {"component": "number", "tier": "text"}
_GLOB = {ord(letter): f"[{letter}]" for letter in "*?["}


@dataclass(frozen=True, slots=True)
class BlameCase:
    """One window of a folder of windows; without a file of components all are of one tier."""

    name: str
    paths: Path
    components: Path | None


def read_window(paths: Path | str, components: Path | str | None = None) -> Window:
    """The window of a Parquet file, with the tiers of another if there is one.

    `paths` has the columns ``path``, ``components`` (a list of ids), ``n`` and ``e``, whole numbers all; `components`
    has ``component`` and ``tier``, and names components that no path crosses too, for they count in the price of a
    name.

    Raises `InputError`, naming file and row, and `MissingExtra` without DuckDB.
    """
    paths = Path(paths)
    starts, flat, columns = _read_paths(paths)
    ids, tiers = (None, None) if components is None else _read_components(Path(components))
    return window(
        starts, flat, columns["n"], columns["e"],
        path_ids=columns["path"], component_ids=ids, tiers=tiers, source=str(paths),
    )  # fmt: skip


def cases(folder: Path | str) -> list[BlameCase]:
    """The cases of a folder by name: each ``cases/NAME.paths.parquet`` with its ``NAME.components.parquet``.

    Raises `InputError` for a folder without any.
    """
    within = Path(folder) / "cases"
    found = sorted(within.glob(f"*{PATHS_SUFFIX}"))
    if not found:
        raise InputError(str(within), f"no file *{PATHS_SUFFIX} in it", "Name a folder that holds cases/")
    names = [path.name.removesuffix(PATHS_SUFFIX) for path in found]
    beside = [path.with_name(name + COMPONENTS_SUFFIX) for path, name in zip(found, names, strict=True)]
    return [
        BlameCase(name, path, other if other.exists() else None)
        for name, path, other in zip(names, found, beside, strict=True)
    ]


def _read_paths(path: Path) -> tuple[NDArray[np.int64], NDArray[Any], dict[str, NDArray[Any]]]:
    """Where each path's components begin, the components of all paths, and the columns path, n and e.

    The number of components is checked before their list is made: a file of a few MiB can hold lists of many GiB.
    """
    file = str(path).translate(_GLOB)
    with _database(path) as db:
        _check_columns(db, path, file, _PATHS)
        rows = "SELECT path, n, e, len(components) AS size FROM read_parquet(?)"
        columns = {name: _filled(values) for name, values in db.execute(rows, [file]).fetchnumpy().items()}
        sizes = np.nan_to_num(columns.pop("size").astype(np.float64)).astype(np.int64)
        if sizes.sum() > MOST_ENTRIES:
            raise InputError(str(path), f"paths have {sizes.sum()} components together", "Take a shorter window")
        flat = db.execute("SELECT unnest(components) AS id FROM read_parquet(?)", [file]).fetchnumpy()["id"]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    _refuse_missing(np.ma.getmaskarray(flat), starts, path)
    return starts, _filled(flat), columns


def _read_components(path: Path) -> tuple[NDArray[Any], NDArray[np.str_]]:
    """Component ids and their tiers, in the order of the file; each id once."""
    file = str(path).translate(_GLOB)
    with _database(path) as db:
        _check_columns(db, path, file, _COMPONENTS)
        found = db.execute("SELECT component, tier::VARCHAR AS tier FROM read_parquet(?)", [file]).fetchnumpy()
    missing = np.ma.getmaskarray(found["component"]) | np.ma.getmaskarray(found["tier"])
    if missing.any():
        raise InputError(_at(path, int(np.argmax(missing))), "component or tier is missing", "Fill it in")
    ids = np.ma.getdata(found["component"])
    distinct, count = np.unique(ids, return_counts=True)
    if (count > 1).any():
        twice = distinct[np.argmax(count > 1)]
        row = int(np.flatnonzero(ids == twice)[1])
        raise InputError(_at(path, row), f"component {twice} is there twice", "Leave one of them out")
    return ids, np.ma.getdata(found["tier"]).astype(np.str_)


def _at(path: Path, row: int) -> str:
    return f"{path}, row {row + 1}"


def _filled(values: NDArray[Any]) -> NDArray[Any]:
    """The values without a mask; what is missing becomes NaN, which `window` refuses with its row."""
    masked = np.ma.getmaskarray(values)
    plain = np.ma.getdata(values)
    return np.where(masked, np.nan, plain) if masked.any() else plain


def _refuse_missing(missing: NDArray[np.bool_], starts: NDArray[np.int64], path: Path) -> None:
    if missing.any():
        row = int(np.searchsorted(starts, np.argmax(missing), side="right")) - 1
        raise InputError(_at(path, row), "a component is missing", "Write its id, or leave it out")


def _check_columns(db: duckdb.DuckDBPyConnection, path: Path, file: str, wanted: Mapping[str, str]) -> None:
    """Refuse a file whose columns are missing or of another type, before their rows are read."""
    described = db.execute("DESCRIBE SELECT * FROM read_parquet(?)", [file]).fetchall()
    types = {str(name): str(kind) for name, kind, *_ in described}
    for name, kind in wanted.items():
        words, pattern = _KINDS[kind]
        if name not in types:
            raise InputError(str(path), f"no column {name}", f"It needs: {', '.join(wanted)}")
        if not pattern.fullmatch(types[name]):
            raise InputError(str(path), f"{name} holds {types[name]}, not {words}", "Write the column with that type")


@contextmanager
def _database(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database to read a Parquet file with. Raises `InputError` with the file's name, and `MemoryError`."""

    def refused(what: str) -> InputError:
        return InputError(str(path), f"not a Parquet file that can be read ({what})", "Write it again as Parquet")

    with duckdb_in_memory("who", refused) as db:
        if not path.is_file():
            what = "a directory, and no file" if path.is_dir() else "no such file"
            raise InputError(str(path), what, "Name a Parquet file that you may read")
        yield db
