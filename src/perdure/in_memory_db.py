"""DuckDB in memory, as all readers of Parquet and CSV use it: it fetches nothing from anywhere, and keeps the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perdure.errors import InputError, MissingExtra
from perdure.installation import to_install

if TYPE_CHECKING:
    import duckdb

_SETTINGS: dict[str, Any] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "preserve_insertion_order": True,
}


@contextmanager
def duckdb_in_memory(where: str, refused: Callable[[str], InputError]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database; what it cannot read or write is `refused`, in its own words. `where` says who needs it.

    Raises `MissingExtra` without DuckDB, and `MemoryError`.
    """
    try:
        import duckdb
    except ImportError as err:
        raise MissingExtra(where, "DuckDB is not installed", to_install("sim")) from err
    with duckdb.connect(config=_SETTINGS) as db:
        try:
            yield db
        except duckdb.OutOfMemoryException as err:
            raise MemoryError(str(err)) from err
        except duckdb.Error as err:
            raise refused(str(err).split("\n", 1)[0]) from err
