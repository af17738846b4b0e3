"""The file of a model: a ZIP of named parts with a header that says what they are, and their digest.

Data only: nothing in it is run, unpickled or imported, and no part is looked at before the digest was verified.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError

FIX = "Train the model again (docs/foundry.md) or reinstall Perdure"
MAX_PART_BYTES = 64 << 20  # of a part, unpacked
_THE_SAME_DAY = (1980, 1, 1, 0, 0, 0)  # not the clock's: equal models give equal bytes
_UNREADABLE = (ValueError, LookupError, TypeError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def pack(kind: str, version: int, parts: Mapping[str, bytes]) -> bytes:
    """The bytes of a file that holds the parts of a `kind` of model, in the form `version`."""
    header = {"kind": kind, "format": version, "sha256": _digest(parts)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"header.json": json.dumps(header).encode(), **parts}.items():
            archive.writestr(zipfile.ZipInfo(name, _THE_SAME_DAY), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def kind_of(data: bytes, source: str) -> str:
    """Which kind of model a file holds. Raises `InputError`."""
    return str(_opened(data, source)[0].get("kind"))


def unpack(data: bytes, source: str, kind: str, version: int, names: tuple[str, ...]) -> dict[str, bytes]:
    """The named parts of what `pack` wrote. Raises `InputError` for any other file, naming `source`."""
    header, archive = _opened(data, source)
    if (header.get("kind"), header.get("format")) != (kind, version):
        found = f"{header.get('kind')} of format {header.get('format')}"
        raise InputError(source, f"a model file for {found}, not {kind} of format {version}", FIX)
    try:
        with archive:
            if max((archive.getinfo(name).file_size for name in names), default=0) > MAX_PART_BYTES:
                raise InputError(source, f"a part of the model file is larger than {MAX_PART_BYTES} bytes", FIX)
            parts = {name: archive.read(name) for name in names}
    except InputError:
        raise
    except _UNREADABLE as err:
        raise InputError(source, f"not a model file ({type(err).__name__})", FIX) from err
    if header.get("sha256") != _digest(parts):
        raise InputError(source, "the model file is damaged: its digest differs", FIX)
    return parts


def array_bytes(array: NDArray[Any]) -> bytes:
    """An array as a part."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def array_of(part: bytes) -> NDArray[Any]:
    """The array in a part whose digest was verified."""
    array: NDArray[Any] = np.load(io.BytesIO(part), allow_pickle=False)
    return array


def _opened(data: bytes, source: str) -> tuple[dict[str, Any], zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        if archive.getinfo("header.json").file_size > 4096:
            raise ValueError("header")
        header = json.loads(archive.read("header.json"))
        if not isinstance(header, dict):
            raise TypeError("header")
    except _UNREADABLE as err:
        raise InputError(source, f"not a model file ({type(err).__name__})", FIX) from err
    return header, archive


def _digest(parts: Mapping[str, bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(parts[name]).digest() for name in sorted(parts))).hexdigest()
