"""A log as it was read: its head and its tail in memory, whole where both meet, in one file or in one a rank."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from perdure.model.output import Output, OutputKind
from perdure.triage.text.clean import scrub

MIB = 1 << 20
BLOCK_BYTES = 256 * 1024
END_BYTES, END_BLOCK_BYTES = 64 * 1024, 8 * 1024
"""The end of a window is cut finer: work is bounded a block, and the end of a log says most."""


class Limits(Struct, frozen=True):
    """How much of a log is looked at: its head and its tail, whole where both meet."""

    head_bytes: int = 4 * MIB
    tail_bytes: int = 12 * MIB


class Source(Struct, frozen=True):
    """One file of a log that is made of several."""

    name: str
    rank: str  # of the task that wrote it; "" where its name tells none
    written_s: float  # when it was last written, seconds since 1970


class TextWindow(Struct, frozen=True):
    """A stretch of a log that starts and ends at a line's border, or in the middle of an over-long line."""

    data: bytes
    first_line: int = 1  # number of its first line
    source: Source | None = None  # None where the log is one file
    goes_on: bool = False  # failure lines run from here to the next window, as seen when what lies between was read


class TextBlock(Struct, frozen=True):
    """A stretch of a window, cut at newlines except within very long lines."""

    window: TextWindow
    start: int
    end: int
    first_line: int

    def scrubbed(self) -> bytes:
        return scrub(self.window.data[self.start : self.end])


class LogText(Struct, frozen=True):
    """A log as far as it was read: windows in order, `skipped_bytes` between them."""

    windows: tuple[TextWindow, ...]
    skipped_bytes: int = 0

    @classmethod
    def of(cls, data: bytes, limits: Limits | None = None) -> LogText:
        """Take what is in memory already; the middle is dropped where it exceeds the limits."""
        limits = limits or Limits()
        if len(data) <= limits.head_bytes + limits.tail_bytes:
            return cls((TextWindow(data),) if data else ())
        start = len(data) - limits.tail_bytes
        tail = TextWindow(data[start:], 1 + data.count(b"\n", 0, start))
        return cls((TextWindow(data[: limits.head_bytes]), tail), start - limits.head_bytes)

    @classmethod
    def of_output(cls, output: Output) -> LogText:
        """Take what an attempt wrote, as far as it is known to be its own: errors first, ranks' files last."""
        files = [file for file in output.files if file.text and not file.doubt]
        skipped = sum(file.skipped for file in files)
        if len(files) == 1 and not files[0].rank:
            return cls((TextWindow(files[0].text),), skipped)
        files.sort(key=lambda file: _READ_FIRST.index(file.kind))
        names = _short_names([file.path for file in files])
        sources = [Source(name, file.rank, file.written_s) for name, file in zip(names, files, strict=True)]
        return cls(tuple(TextWindow(f.text, source=source) for f, source in zip(files, sources, strict=True)), skipped)


_READ_FIRST = (OutputKind.STDERR, OutputKind.STDOUT, OutputKind.RANK)


def _short_names(paths: list[str]) -> list[str]:
    """Names that tell files apart: without the directories that all have in common."""
    common = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""
    return [path.removeprefix(common).lstrip("/") for path in paths]


def newlines(data: bytes, start: int, end: int) -> int:
    """How many lines end in a stretch; of a long one at five times the speed of `bytes.count`."""
    if end - start < _LONG:
        return data.count(b"\n", start, end)
    codes = np.frombuffer(data, dtype=np.uint8, count=end - start, offset=start)
    return int(np.count_nonzero(codes == ord("\n")))


_LONG = 2048


def blocks(window: TextWindow, size: int = BLOCK_BYTES, end_bytes: int = END_BYTES) -> Iterator[TextBlock]:
    """Cut a window into blocks of about `size` bytes, smaller ones in its last `end_bytes`."""
    start, line, length = 0, window.first_line, len(window.data)
    while start < length:
        left = length - start
        wanted = min(size, END_BLOCK_BYTES) if left <= end_bytes else min(size, left - end_bytes)
        end = _line_border(window.data, start, min(start + wanted, length))
        yield TextBlock(window, start, end, line)
        line += newlines(window.data, start, end)
        start = end


def _line_border(data: bytes, start: int, end: int) -> int:
    """The last line's end in the stretch; where none ends in it, the next if it is near."""
    if end == len(data):
        return end
    return data.rfind(b"\n", start, end) + 1 or data.find(b"\n", end, end + BLOCK_BYTES) + 1 or end
