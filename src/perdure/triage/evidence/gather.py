"""A log of any size, read once from its first byte to its last: what of it is to be kept in memory for a verdict.

Its head and its tail are kept, and where a run of failure lines reaches back beyond the tail, the place at which that
run began: the cause of a storm is before the storm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from perdure.triage.evidence.matching import Match
from perdure.triage.text.logtext import MIB, Limits, LogText, Source, TextBlock, TextWindow, blocks
from perdure.triage.text.runs import Runs

RUN_BYTES = MIB
"""This much is kept of the place where a run of failure lines began."""

MAX_CARRIED_BYTES = 64 * 1024
"""A line's beginning is carried over to its end, up to this many bytes."""

Signs = Callable[[TextBlock], Iterable[Match]]
"""What finds the lines of a block that rules match: a `RuleBook.matcher`."""


class Gatherer:
    """Takes a log piece by piece; never holds more than the limits, `RUN_BYTES` and a piece."""

    def __init__(self, signs: Signs, limits: Limits | None = None, source: Source | None = None) -> None:
        self._signs, self._limits, self._source = signs, limits or Limits(), source
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._held = 0  # bytes of the tail
        self._carried = b""
        self._line = 1  # number of the first line that was not searched
        self._passed_bytes = self._passed_lines = 0  # between head and tail
        self._runs, self._run = Runs(), 0
        self._place = self._window(b"", 1)  # all that passes is one stretch
        self._began: TextWindow | None = None  # where the last run of failure lines began, cut at `RUN_BYTES`

    def feed(self, piece: bytes) -> None:
        """Take the next piece of the log; about a MiB is a good size."""
        if missing := self._limits.head_bytes - len(self._head):
            self._head += piece[:missing]
            piece = piece[missing:]
        if not piece:
            return
        self._tail.append(piece)
        self._held += len(piece)
        while self._held - len(self._tail[0]) >= self._limits.tail_bytes:
            self._pass(self._tail.popleft())

    def text(self) -> LogText:
        """What was kept of the log, now that it is at its end."""
        head, tail = bytes(self._head), b"".join(self._tail)
        if not self._passed_bytes:
            return LogText((self._window(head + tail, 1),) if head or tail else ())
        first = self._window(head, 1)
        last = self._window(tail, 1 + head.count(b"\n") + self._passed_lines)
        began = self._began
        if began is None or self._runs.is_calm_at(last.first_line):
            return LogText((first, last), self._passed_bytes)
        if began.first_line <= 1 + head.count(b"\n"):
            return LogText((replace(first, goes_on=True), last), self._passed_bytes)
        skipped = max(0, self._passed_bytes - len(began.data))
        return LogText((first, replace(began, goes_on=True), last), skipped)

    def _window(self, data: bytes, first_line: int) -> TextWindow:
        return TextWindow(data, first_line, source=self._source)

    def _pass(self, piece: bytes) -> None:
        """Drop a piece that is neither head nor tail; where failure lines are in it is remembered."""
        if not self._passed_bytes:
            self._search(bytes(self._head))
        self._held -= len(piece)
        self._passed_bytes += len(piece)
        self._passed_lines += piece.count(b"\n")
        self._search(piece)

    def _search(self, piece: bytes) -> None:
        data = self._carried + piece
        end = data.rfind(b"\n") + 1
        if len(data) - end > MAX_CARRIED_BYTES:
            end = len(data)
        self._carried = data[end:]
        window = self._window(data[:end], self._line)
        self._line += window.data.count(b"\n")
        if (began := self._began) is not None and len(began.data) < RUN_BYTES // 2:
            self._began = replace(began, data=began.data + window.data[: RUN_BYTES - len(began.data)])
        for block in blocks(window, end_bytes=0):
            self._runs.enter(block)
            for match in self._signs(block):
                self._found(match, block)

    def _found(self, match: Match, block: TextBlock) -> None:
        run = self._runs.of(match.line, self._place, match.near)
        if run != self._run:
            self._run = run
            data = block.window.data[block.start : block.start + RUN_BYTES]
            self._began = self._window(data, block.first_line)


def gathered(
    pieces: Iterable[bytes], signs: Signs, limits: Limits | None = None, source: Source | None = None
) -> LogText:
    """Read a log to its end."""
    gatherer = Gatherer(signs, limits, source)
    for piece in pieces:
        gatherer.feed(piece)
    return gatherer.text()
