"""Raw bytes of a log to lines that can be matched, shown and learnt from, in bounded memory.

Two levels. `scrub` works on megabytes at a time and keeps every newline, so line numbers stay true: escape
sequences and control characters go, a carriage return starts a new piece. `tidy` works on the few lines that
matter: invalid UTF-8, bidirectional marks, rank and time prefixes, over-long lines.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import re2

from perdure.errors import InputError, LogRefused

MIB = 1 << 20
BLOCK_BYTES = MIB
MAX_LINE_BYTES = 4096
"""Longer lines are matched and kept in pieces of at most this size."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a log is looked at: its head and its tail, whole where both meet."""

    head_bytes: int = 4 * MIB
    tail_bytes: int = 12 * MIB
    count_bytes: int = 8 << 30
    """Up to this size the newlines between the windows are counted, so that line numbers count from the top."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a log that starts and ends at a line's border, or in the middle of an over-long line."""

    data: bytes
    first_line: int = 1  # number of its first line
    counts_from: str = "the start of the log"  # what line 1 is


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


def read_windows(path: Path | str, limits: Limits | None = None) -> LogText:
    """Read a regular file, head and tail. Raises `LogRefused` for anything else, `InputError` if it cannot be read.

    A FIFO or device is refused without being waited for. Whoever must not follow links opens the file
    himself and calls `windows_of`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except OSError as err:
        raise InputError(str(path), f"cannot be read ({err.strerror})", "Name a log file that you may read") from err
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LogRefused(str(path), "is not a regular file", "Name a log file, not a directory, pipe or device")
    with os.fdopen(descriptor, "rb", buffering=0) as handle:
        return windows_of(handle, limits)


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
        while left and (block := handle.read(min(left, BLOCK_BYTES))):
            middle, left = middle + block.count(b"\n"), left - len(block)
    handle.seek(size - limits.tail_bytes)
    return _joined(head, _read(handle, limits.tail_bytes), middle, size)


def _read(handle: BinaryIO | Any, size: int) -> bytes:
    """Read `size` bytes, fewer only at the end of the file."""
    blocks = []
    while size and (block := handle.read(size)):
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def _joined(head: bytes, tail: bytes, middle: int | None, size: int) -> LogText:
    """Two windows; `middle` newlines lie between them, None if nobody counted."""
    skipped = size - len(head) - len(tail)
    if middle is None:
        return LogText((Window(head), Window(tail, 1, f"byte {size - len(tail)} of the log")), skipped)
    return LogText((Window(head), Window(tail, 1 + head.count(b"\n") + middle)), skipped)


# ---------------------------------------------------------------- by the megabyte


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return re2.compile(pattern.encode(), options)


@lru_cache(maxsize=1)
def _escapes() -> Any:
    """CSI, OSC, DCS and two-byte escapes; none crosses a newline."""
    return _compiled(
        r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
    )


_DROPPED = bytes(c for c in range(32) if c not in (9, 10)) + b"\x7f"  # all controls but tab and newline


def scrub(block: bytes) -> bytes:
    """Take escape sequences and control characters out; newlines stay, each carriage return becomes `PIECE`.

    >>> scrub(b"\\x1b[31mred\\x1b[0m\\r\\nnext")
    b'red\\nnext'
    """
    block = _without_escapes(block)
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", PIECE)
    return block.translate(_KEEP, _DROPPED) if PIECE not in block else _translate_pieces(block)


MAX_DISTINCT_ESCAPES = 64


def _without_escapes(block: bytes) -> bytes:
    """Take escapes out one kind at a time: a log holds many, but of few kinds."""
    for _ in range(MAX_DISTINCT_ESCAPES):
        at = block.find(b"\x1b")
        if at < 0:
            return block
        found = _escapes().match(block, at)
        block = block.replace(found.group() if found else b"\x1b", b"")
    return bytes(_escapes().sub(b"", block))


PIECE = b"\x0b"
"""Stands for a carriage return after `scrub`: the line goes on, its picture starts anew."""

_KEEP = bytes(range(256))
_DROPPED_BUT_PIECE = bytes(c for c in _DROPPED if c != PIECE[0])


def _translate_pieces(block: bytes) -> bytes:
    return block.translate(_KEEP, _DROPPED_BUT_PIECE)


def blocks(window: Window, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield `(number of its first line, scrubbed block)`, cut at newlines where lines are shorter than a block."""
    data, start, line = window.data, 0, window.first_line
    while start < len(data):
        end = min(start + size, len(data))
        if end < len(data):
            cut = data.rfind(b"\n", start, end) + 1
            end = cut if cut > start else end
        raw = data[start:end]
        yield line, scrub(raw)
        line, start = line + raw.count(b"\n"), end


# ---------------------------------------------------------------- by the line


@lru_cache(maxsize=1)
def _prefix() -> Any:
    """What launchers, runtimes and loggers put before a line: ranks, workers, times."""
    rank = (
        r"\[(?:rank|Rank|RANK|default|GPU|worker)[ _-]?\d+\]:?"
        r"|\[\d+,\d+\]<(?:std)?(?:err|out)[^>]*>:?"
        r"|\[\d+\](?::|(?:std)?(?:err|out):)"
        r"|\d{1,6}: "
        r"|\(\w+(?:\([^)]*\))? pid=\d+(?:, ip=[^)]*)?\)"
        r"|\w[\w.-]*[:-]\d+:\d+ \[\d+\]"
        r"|\[[\w.-]+:\d+(?::\d+)*\]"
    )
    time = (
        r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[,:;]?"
        r"|\[?\d\d[:/]\d\d[:/]\d\d(?:[.,]\d+)?(?: \d\d:\d\d:\d\d)?\]?"
        r"|[EWIF]\d{4} \d\d:\d\d:\d\d\.\d+ +(?:\d+ )?[\w./-]+:\d+\]"
        r"|[\d.]+s: "
    )
    return _compiled(rf"^(?:[ \t|]*(?:{rank}|{time})[ \t|]*)+")


ADVICE = (
    r"(?i)CUDA kernel errors might be asynchronously reported"
    r"|For debugging consider passing CUDA_LAUNCH_BLOCKING"
    r"|Compile with `?TORCH_USE_CUDA_DSA"
    r"|Set the environment variable HYDRA_FULL_ERROR"
    r"|To enable traceback please see"
    r"|See https?://\S+ for (?:details|more)"
    r"|Set MCA parameter \"orte_base_help_aggregate\""
    r"|more process(?:es)? ha(?:s|ve) sent help message"
    r"|You can (?:avoid|suppress) this (?:message|warning)"
    r"|To avoid data inconsistency, we are taking the entire process down"
    r"|may be due to an? .* or .*"
    r"|libibverbs: Warning: couldn't load driver"
    r"|NOTE: invoking MPI_ABORT causes"
    r"|\b\w*Warning: "
)
"""Lines that advise or warn, and say nothing of the cause of this failure."""

SURVIVED = (
    r"(?i)\b(?:re-?trying|will (?:be )?re-?(?:try|tried)|re-?connecting|retry (?:\d+|in|after)"
    r"|attempt \d+ ?(?:/|of) ?\d+"
    r"|falling back|fall back|entering retry loop|ignor(?:ed|ing)|skipp(?:ed|ing)"
    r"|non-fatal|harmless|recovered|resum(?:ed|ing)"
    r"|\[?warn(?:ing)?\]?\b)"
)
"""Words of a line that tells of a failure which the program dealt with, or only warns of."""


@lru_cache(maxsize=1)
def _advice() -> Any:
    return _compiled(ADVICE)


@lru_cache(maxsize=1)
def _bar() -> Any:
    """A progress bar as tqdm, rich, Keras, wget or pip draw it."""
    return _compiled(
        r"[^\x0b]*?\d+%\|[^|]*\|[^\[]*\[[^\]]*\](?:\s*\x1b?\[?A)?"
        r"|[^\x0b]*\d+it \[[^\]]*\]"
        r"|^\s*\d+/\d+ \[[=>.\s-]+\].*"
        r"|^.*(?:━|█|╸|─){4,}.*"
        r"|^\s*\d+%\s*\[[=>\s#-]*\].*"
    )


_BIDI = dict.fromkeys(
    [*range(0x80, 0xA0), 0x61C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
)


_BAR_MARKS = (b"%|", b"it [", b"/", b"% [", "━".encode(), "█".encode())


def decode(piece: bytes) -> str:
    """Text of a scrubbed piece that is safe to show: valid, without direction marks, cut at `MAX_LINE_BYTES`."""
    return piece[:MAX_LINE_BYTES].decode("utf-8", "replace").translate(_BIDI)


def without_bars(line: bytes) -> bytes:
    """The last picture of a line that carriage returns redrew, without progress bars.

    >>> without_bars(b" 10%|#    | 1/10 [00:01<00:09]" + PIECE + b" 20%|##   | 2/10 [00:02<00:08]Error: x")
    b'Error: x'
    """
    last = line
    if PIECE in line:
        last = next((piece for piece in reversed(line.split(PIECE)) if piece.strip()), b"")
    return bytes(_bar().sub(b"", last)) if any(mark in last for mark in _BAR_MARKS) else last


def without_prefix(line: bytes) -> bytes:
    """The line without what launchers and loggers put before it.

    >>> without_prefix(b"[rank3]: [2025-01-01 00:00:00,123] ERROR - ValueError: x")
    b'ERROR - ValueError: x'
    """
    line = line[:MAX_LINE_BYTES]
    if line[:1].isalpha() and b"]" not in line[:80]:
        return line
    return bytes(_prefix().sub(b"", line, 1))


def is_advice(line: bytes) -> bool:
    return _advice().search(line) is not None


# ---------------------------------------------------------------- masking

_MASKS = (
    (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)?Z?\b|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b", b" <time> "),
    (r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[[0-9a-fA-F:]*::[0-9a-fA-F:]*\](?::\d+)?", b" <ip> "),
    (r"https?://[^\s'\"<>)]+", b" <url> "),
    (r"(?:/[\w.+@%=,~-]+){2,}/?|\b[\w.-]+(?:/[\w.-]+){2,}", b" <path> "),
    (r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b|\b[0-9A-F]{12,}\b", b" <hex> "),
    (r"[-+]?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", b"<n>"),
)


@lru_cache(maxsize=1)
def _masks() -> tuple[tuple[Any, bytes], ...]:
    return tuple((_compiled(pattern), name) for pattern, name in _MASKS)


def mask(text: bytes) -> bytes:
    """Put names in the place of what changes from run to run: times, addresses, paths, hex and other numbers.

    >>> mask(b"OSError: [Errno 28] No space left on device: '/scratch/a1/x.pt'")
    b"OSError: [Errno <n>] No space left on device: ' <path> '"
    """
    for pattern, name in _masks():
        text = pattern.sub(name, text)
    return text
