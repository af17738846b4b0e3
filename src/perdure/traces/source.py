"""A trace file at the edge: its first bytes, its lines, compressed or not, and the line of a row."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from perdure.errors import InputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEAD_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20
_PARQUET = b"PAR1"
GZIP = b"\x1f\x8b"
_UNPACKING: Mapping[bytes, Callable[[Path], object]] = {  # by the first bytes of a packed file
    GZIP: gzip.open,
    b"\x28\xb5\x2f\xfd": zstd.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}
_DAMAGED = EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError, lzma.LZMAError


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file that was found to be readable. Build it with `open_source`."""

    path: Path
    head: bytes  # the first bytes, unpacked; of a Parquet file its column names as the header of a CSV file
    packing: bytes  # the first bytes of a packed file, by which its packing is known; empty where it is not packed
    parquet: bool
    most_bytes: int | None = None  # that it was held to; whatever is read next to it is held to the same
    names: tuple[str, ...] = ()  # of the columns, where the file has no header line

    @property
    def header(self) -> list[str]:
        """The first line, as the header of a CSV file; or the names that stand for it."""
        if self.names:
            return list(self.names)
        lines = self.head.decode("utf-8-sig", "replace").splitlines()
        try:
            return [name.strip() for name in next(csv.reader(lines[:1]), [])]
        except csv.Error:  # a field beyond the limit of the module
            return []

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The unpacked bytes. A cut-off or damaged packed file is an `InputError`, whenever that shows."""
        try:
            with _opened(self.path, self.packing) as stream:
                yield stream
        except _DAMAGED as err:
            raise self.damaged(str(err)) from err
        except OSError as err:
            if err.errno is not None:
                raise
            raise self.damaged(str(err)) from err  # bzip2's way to say so

    @contextmanager
    def unpacked(self) -> Iterator[Path]:
        """A file that is not packed, or by gzip, for who can read such files alone; one that is made for it goes."""
        if self.packing in (b"", GZIP):
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="perdure-trace-") as file:
            with self.open() as stream:
                shutil.copyfileobj(stream, file, _PIECE_BYTES)
            file.flush()
            yield Path(file.name)

    @contextmanager
    def text(self) -> Iterator[IO[str]]:
        """The file as text; bytes that are not UTF-8 are replaced, for they are in somebody's free text."""
        with self.open() as stream:
            yield io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="\n")

    def damaged(self, what: str) -> InputError:
        return InputError(str(self.path), f"the file is cut off or damaged ({what})", "Copy or export it again")

    def at_line(self, line: int) -> str:
        return f"{self.path}:{line}"

    def at_row(self, row: int) -> str:
        """The place of row `row` (the first is 0) of this table: read again, for only an error needs it."""
        if self.parquet:
            return f"{self.path}, row {row + 1}"
        with self.text() as lines, suppress(csv.Error):
            records = csv.reader(lines)
            filled = (record for record in records if record)
            for seen, _ in enumerate(filled, 0 if self.names else -1):  # the header comes first
                if seen == row:
                    return self.at_line(records.line_num)
        return f"{self.path}, row {row + 1}"


def _opened(path: Path, packing: bytes) -> IO[bytes]:
    return cast("IO[bytes]", _UNPACKING[packing](path)) if packing else path.open("rb")


def open_source(path: Path | str, most_bytes: int | None = None) -> TraceSource:
    """Look at a file. Raises `InputError` if it cannot be read or is empty, or unpacks to more than `most_bytes`.

    The size is found by unpacking it all once, so that no reader meets more, by whatever way it unpacks.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(max(_UNPACKING, key=len)))
        packing = next((first for first in _UNPACKING if magic.startswith(first)), b"")
        with _opened(path, packing) as stream:
            head = stream.read(HEAD_BYTES)
            if most_bytes is not None and _is_longer(stream, most_bytes - len(head)):
                raise too_large(path, most_bytes)
    except _DAMAGED as err:
        raise TraceSource(path, b"", b"", False).damaged(str(err)) from err
    except OSError as err:
        raise InputError(str(path), err.strerror or str(err), "Name a trace file that you may read") from err
    if not head.strip():
        raise InputError(str(path), "the file is empty", "Export the trace again")
    return TraceSource(path, head, packing, magic.startswith(_PARQUET), most_bytes)


def too_large(path: Path, most_bytes: int) -> InputError:
    """The word to who hands in a file that is larger than its caller can take."""
    what = f"it unpacks to more than {most_bytes / (1 << 20):.0f} MiB"
    return InputError(str(path), what, "Take a part of the trace, or let the bound be raised")


def _is_longer(stream: IO[bytes], most_bytes: int) -> bool:
    """Whether more than `most_bytes` are left; reads no further than that tells."""
    while most_bytes >= 0:
        piece = stream.read(_PIECE_BYTES)
        if not piece:
            return False
        most_bytes -= len(piece)
    return True
