"""A log as it was read: its head and its tail in memory, whole where both meet, in one file or in one a rank."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from perdure.errors import InputError, LogRefused
from perdure.triage.clean import scrub

MIB = 1 << 20
BLOCK_BYTES = 256 * 1024
END_BYTES, END_BLOCK_BYTES = 64 * 1024, 8 * 1024
"""The end of a window is cut finer: work is bounded a block, and the end of a log says most."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a log is looked at: its head and its tail, whole where both meet."""

    head_bytes: int = 4 * MIB
    tail_bytes: int = 12 * MIB
    count_bytes: int = 8 << 30
    """Up to this size the newlines between the windows are counted, so that line numbers count from the top."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a log that is made of several."""

    name: str
    rank: str  # of the task that wrote it; "" where its name tells none
    written_s: float  # when it was last written, seconds since 1970


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a log that starts and ends at a line's border, or in the middle of an over-long line."""

    data: bytes
    first_line: int = 1  # number of its first line
    counts_from: str = "the start of the log"  # what line 1 is
    source: Source | None = None  # None where the log is one file


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a window, cut at newlines where lines are shorter than it."""

    window: Window
    start: int
    end: int
    first_line: int

    def scrubbed(self) -> bytes:
        return scrub(self.window.data[self.start : self.end])


@dataclass(frozen=True, slots=True)
class LogText:
    """A log as far as it was read: windows in order, `skipped_bytes` between them."""

    windows: tuple[Window, ...]
    skipped_bytes: int = 0

    @classmethod
    def of(cls, data: bytes, limits: Limits | None = None) -> LogText:
        """Take what is in memory already; the middle is dropped where it exceeds the limits."""
        limits = limits or Limits()
        if len(data) <= limits.head_bytes + limits.tail_bytes:
            return cls((Window(data),) if data else ())
        head, tail = data[: limits.head_bytes], data[-limits.tail_bytes :]
        middle = data.count(b"\n", limits.head_bytes, len(data) - limits.tail_bytes)
        return _joined(head, tail, middle, len(data))


def blocks(window: Window, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Cut a window into blocks of about `size` bytes, smaller ones at its end."""
    start, line, length = 0, window.first_line, len(window.data)
    while start < length:
        left = length - start
        wanted = min(size, END_BLOCK_BYTES) if left <= END_BYTES else min(size, left - END_BYTES)
        end = _line_border(window.data, start, min(start + wanted, length))
        yield Block(window, start, end, line)
        line += window.data.count(b"\n", start, end)
        start = end


def _line_border(data: bytes, start: int, end: int) -> int:
    """The last line's end within the stretch, or its own end where no line ends in it."""
    if end == len(data):
        return end
    cut = data.rfind(b"\n", start, end) + 1
    return cut if cut > start else end


def read_windows(path: Path | str, limits: Limits | None = None) -> LogText:
    """Read a regular file, head and tail. Raises `LogRefused` for anything else, `InputError` if it cannot be read.

    A FIFO or device is refused without being waited for. Whoever must not follow links opens the file
    himself and calls `windows_of`.
    """
    with open_regular(path) as handle:
        return windows_of(handle, limits)


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file without waiting for it; raises as `read_windows` does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a log file that you may read") from err
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LogRefused(str(path), "is not a regular file", "Name a log file, not a directory, pipe or device")
    return os.fdopen(descriptor, "rb", buffering=0)


def windows_of(handle: BinaryIO | Any, limits: Limits | None = None) -> LogText:
    """Read the windows of an open, seekable binary file; one that grows meanwhile is read up to its size now."""
    limits = limits or Limits()
    size = handle.seek(0, os.SEEK_END)
    handle.seek(0)
    if size <= limits.head_bytes + limits.tail_bytes:
        return LogText.of(_read(handle, size), limits)
    head = _read(handle, limits.head_bytes)
    middle = None
    if size <= limits.count_bytes:
        left, middle = size - limits.head_bytes - limits.tail_bytes, 0
        while left and (block := handle.read(min(left, MIB))):
            middle, left = middle + block.count(b"\n"), left - len(block)
    handle.seek(size - limits.tail_bytes)
    return _joined(head, _read(handle, limits.tail_bytes), middle, size)


def _read(handle: BinaryIO | Any, size: int) -> bytes:
    """Read `size` bytes, fewer only at the end of the file."""
    pieces = []
    while size and (piece := handle.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _joined(head: bytes, tail: bytes, middle: int | None, size: int) -> LogText:
    """Two windows; `middle` newlines lie between them, None if nobody counted."""
    skipped = size - len(head) - len(tail)
    if middle is None:
        return LogText((Window(head), Window(tail, 1, f"byte {size - len(tail)} of the log")), skipped)
    return LogText((Window(head), Window(tail, 1 + head.count(b"\n") + middle)), skipped)
