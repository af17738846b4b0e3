"""A trace file at the edge: its first bytes, its lines, compressed or not, and where in it a row stands."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from perdure.errors import InputError

HEAD_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file that was found to be readable. Build it with `open_source`."""

    path: Path
    head: bytes  # the first bytes, unpacked; of a Parquet file its column names as the header of a CSV file
    gzipped: bool
    parquet: bool
    most_bytes: int | None = None  # that it was held to; whatever is read beside it is held to the same

    @property
    def header(self) -> list[str]:
        """The first line, as the header of a CSV file."""
        lines = self.head.decode("utf-8-sig", "replace").splitlines()
        try:
            return [name.strip() for name in next(csv.reader(lines[:1]), [])]
        except csv.Error:  # a field beyond the limit of the module
            return []

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The unpacked bytes. A cut-off or damaged gzip file is an `InputError`, whenever that shows."""
        try:
            with _opened(self.path, self.gzipped) as stream:
                yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error) as err:
            raise self.damaged(str(err)) from err

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
        """Where row `row` (the first is 0) of this table stands: read again, for only an error needs it."""
        if self.parquet:
            return f"{self.path}, row {row + 1}"
        with self.text() as lines, suppress(csv.Error):
            records = csv.reader(lines)
            filled = (record for record in records if record)
            for seen, _ in enumerate(filled, -1):  # the header comes first
                if seen == row:
                    return self.at_line(records.line_num)
        return f"{self.path}, row {row + 1}"


def _opened(path: Path, gzipped: bool) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if gzipped else path.open("rb")


def open_source(path: Path | str, most_bytes: int | None = None) -> TraceSource:
    """Look at a file. Raises `InputError` if it cannot be read or is empty, or unpacks to more than `most_bytes`.

    The size is found by unpacking it all once, so that no reader meets more, by whatever way it unpacks.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
        gzipped = magic.startswith(_GZIP)
        with _opened(path, gzipped) as stream:
            head = stream.read(HEAD_BYTES)
            if most_bytes is not None and _is_longer(stream, most_bytes - len(head)):
                raise too_large(path, most_bytes)
    except (EOFError, gzip.BadGzipFile, zlib.error) as err:
        raise TraceSource(path, b"", True, False).damaged(str(err)) from err
    except OSError as err:
        raise InputError(str(path), err.strerror or str(err), "Name a trace file that you may read") from err
    if not head.strip():
        raise InputError(str(path), "the file is empty", "Export the trace again")
    return TraceSource(path, head, gzipped, magic == _PARQUET, most_bytes)


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
