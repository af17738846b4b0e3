"""Past jobs as columns, beside the text of accounting that they were read from: that takes ten times as long."""

from __future__ import annotations

import io
import zipfile
from dataclasses import fields, replace
from typing import Any

import numpy as np

from perdure import __version__
from perdure.cli.kept import KeptFolder
from perdure.model.table import JobTable

_STAMP, _BEGAN = "stamp", "began_s"
_NOT_KEPT = ("attempts", _BEGAN)


def read_table(kept: KeptFolder, text: str, columns: str) -> JobTable | None:
    """The jobs of an accounting's text that is kept under a name, without their attempts; None where it is not there.

    Raises `InputError` for a text that cannot be read.
    """
    path = kept.path(text)
    if path is None or not path.exists():
        return None
    seen = path.stat()
    stamp = f"{__version__} {seen.st_mtime_ns} {seen.st_size}"
    found = _columns(kept, columns, stamp)
    if found is None:
        from perdure.traces import sacct
        from perdure.traces.columns import look

        found = replace(sacct.FORMAT.read(look(path), True).table, attempts=None)
        kept.write(columns, _packed(found, stamp))
    return found


def _columns(kept: KeptFolder, name: str, stamp: str) -> JobTable | None:
    """What is kept of this very text; None for anything else."""
    there = kept.read(name)
    if there is None:
        return None
    try:
        with np.load(io.BytesIO(there[0]), allow_pickle=False) as file:
            if str(file[_STAMP]) != stamp:
                return None
            its = {each.name: file[each.name] for each in fields(JobTable) if each.name in file.files}
            return JobTable(**{**its, _BEGAN: float(file[_BEGAN])})
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):  # cut short, or another version's
        return None


def _packed(table: JobTable, stamp: str) -> bytes:
    told = (each.name for each in fields(table) if each.name not in _NOT_KEPT and table.tells(each.name))
    columns: dict[str, Any] = {name: getattr(table, name) for name in told}
    file = io.BytesIO()
    np.savez(file, **{_STAMP: np.array(stamp), _BEGAN: np.array(table.began_s), **columns})
    return file.getvalue()
