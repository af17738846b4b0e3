"""Cells of lines: a text without quotes, cut at its separators by NumPy, a block of lines at a time.

Lines are taken as cells only where they have as many as asked and none that is wanted is very long. All others are
handed back as text, for a reader that takes its time over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.traces.source import TraceSource

BLOCK_BYTES = 1 << 18  # few enough for all that is made of them to stay near the processor
MAX_LINE_BYTES = 1 << 22
MAX_CELL_BYTES = 512  # of a cell that is taken as such
_TAB, _NEWLINE, _RETURN, _BLANK = b"\t\n\r "
_BOM = b"\xef\xbb\xbf"

Bytes = NDArray[np.bytes_]
Line = tuple[int, str]  # its number in the file, and its text


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, each ended by a newline."""

    raw: bytes
    first_line: int  # the number of the first of them

    def lines(self) -> Iterator[Line]:
        """All of them as text; bytes that are not UTF-8 are replaced."""
        return enumerate(self.raw.decode("utf-8", "replace").split("\n")[:-1], self.first_line)


def below_header(source: TraceSource) -> Iterator[Block]:
    """The lines below the first, some at a time. Raises what `blocks` does."""
    for block in blocks(source):
        if block.first_line > 1:
            yield block
        elif below := block.raw.partition(b"\n")[2]:
            yield Block(below, 2)


def blocks(source: TraceSource) -> Iterator[Block]:
    """The lines of a file, some at a time. Raises `InputError` for a line beyond `MAX_LINE_BYTES`."""
    line, begun = 1, b""
    with source.open() as stream:
        while read := stream.read(BLOCK_BYTES):
            whole, newline, rest = (begun + read).rpartition(b"\n")
            if newline:
                yield Block((whole if line > 1 else whole.removeprefix(_BOM)) + newline, line)
                line += whole.count(b"\n") + 1
            if len(rest) > MAX_LINE_BYTES:
                what = f"the line has more than {MAX_LINE_BYTES >> 20} MiB"
                raise InputError(source.at_line(line), what, "Export the trace again")
            begun = rest
    if begun:
        yield Block((begun if line > 1 else begun.removeprefix(_BOM)) + b"\n", line)


@dataclass(frozen=True, slots=True)
class Marks:
    """Where the cells of a block begin and stop (the first byte behind), one after another."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    bounds: NDArray[np.int64]  # shape (n_lines + 1,): the cells of line i are ``bounds[i]:bounds[i + 1]``
    line_end: NDArray[np.int64]  # shape (n_lines,): where its newline is


def at_each(separator: bytes, block: Block) -> Marks:
    """Cells that are set apart by each occurrence of a separator of one byte or two."""
    letters = np.frombuffer(block.raw, np.uint8)
    newline = letters == _NEWLINE
    ends = letters == separator[0]
    if len(separator) == 2:
        ends[:-1] &= letters[1:] == separator[1]
    stop = np.flatnonzero(ends | newline)
    last = np.flatnonzero(newline[stop])
    line_end = stop[last]
    start = np.empty_like(stop)
    start[:1] = 0
    np.add(stop[:-1], len(separator), out=start[1:])
    start[last[:-1] + 1] = line_end[:-1] + 1
    stop[last] -= (line_end > start[last]) & (letters[line_end - 1] == _RETURN)
    return Marks(start, stop, np.append(0, last + 1), line_end)


def at_blanks(block: Block) -> Marks:
    """Cells that are set apart by blanks, as many as there may be."""
    letters = np.frombuffer(block.raw, np.uint8)
    blank = np.concatenate([[True], (letters == _BLANK) | (letters >= _TAB) & (letters <= _RETURN)])
    start, stop = np.flatnonzero(blank[:-1] > blank[1:]), np.flatnonzero(blank[:-1] < blank[1:])
    line_end = np.flatnonzero(letters == _NEWLINE)
    return Marks(start, stop, np.concatenate([[0], np.searchsorted(start, line_end)]), line_end)


@dataclass(frozen=True, slots=True)
class Cells:
    """The wanted cells of lines that have as many as asked."""

    raw: bytes  # the block, and `MAX_CELL_BYTES` more
    line: NDArray[np.int64]  # shape (n_lines,): their numbers in the file
    start: NDArray[np.int64]  # shape (n_lines, n_wanted)
    stop: NDArray[np.int64]  # likewise

    def column(self, which: int) -> Bytes:
        """The cells of the wanted column number `which`, shape (n_lines,)."""
        start, size = self.start[:, which], self.stop[:, which] - self.start[:, which]
        width = max(1, int(size.max(initial=0)))
        # Each byte of the block as the begin of a text of that many bytes: one copy takes the column out.
        texts: Bytes = np.ndarray((len(self.raw) - width + 1,), f"S{width}", self.raw, strides=(1,))[start]
        if size.min(initial=width) < width:
            letters = texts.view(np.uint8).reshape(len(texts), width)
            letters *= np.arange(width) < size[:, None]
        return texts


def take(block: Block, marks: Marks, width: int, wanted: Sequence[int]) -> tuple[Cells, list[Line]]:
    """The cells at the places `wanted` of all lines that have `width` cells; and the other lines, as they are."""
    fitting = np.flatnonzero(np.diff(marks.bounds) == width)
    places = marks.bounds[fitting][:, None] + np.array(wanted)
    short = (marks.stop[places] - marks.start[places] <= MAX_CELL_BYTES).all(axis=1)
    fitting, places = fitting[short], places[short]
    raw = block.raw + bytes(MAX_CELL_BYTES)
    cells = Cells(raw, fitting + block.first_line, marks.start[places], marks.stop[places])
    others = np.setdiff1d(np.arange(len(marks.line_end)), fitting, assume_unique=True)
    begins = np.concatenate([[0], marks.line_end + 1])
    spans = zip(others.tolist(), begins[others].tolist(), marks.line_end[others].tolist(), strict=True)
    return cells, [(block.first_line + row, raw[start:end].decode("utf-8", "replace")) for row, start, end in spans]


def as_texts(cells: Bytes, widest: int) -> NDArray[np.str_]:
    """Cells as texts of at most `widest` characters; bytes that are not UTF-8 are replaced."""
    try:
        return cells.astype(f"U{min(cells.itemsize, widest)}")
    except UnicodeDecodeError:
        return np.array([cell.decode("utf-8", "replace")[:widest] for cell in cells.tolist()], np.str_)
