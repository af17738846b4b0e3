"""Logs as ``perdure why`` is given them: files by name, or standard input."""

from __future__ import annotations

import os
import stat
from collections import deque
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from perdure.triage.logtext import Limits, LogText

BLOCK_BYTES = 1 << 20


def read_stream(stream: BinaryIO, limits: Limits | None = None) -> LogText:
    """Read a stream to its end and keep its head and its tail; never more than the limits in memory."""
    from perdure.triage.logtext import Limits, LogText, Window, windows_of

    limits = limits or Limits()
    if _is_file(stream):
        return windows_of(stream, limits)
    head = stream.read(limits.head_bytes)
    tail: deque[bytes] = deque()
    held, dropped, dropped_lines = 0, 0, 0
    while block := stream.read(BLOCK_BYTES):
        tail.append(block)
        held += len(block)
        while held - len(tail[0]) >= limits.tail_bytes:
            gone = tail.popleft()
            held, dropped, dropped_lines = held - len(gone), dropped + len(gone), dropped_lines + gone.count(b"\n")
    if not dropped:
        return LogText.of(head + b"".join(tail), limits)
    first_line = 1 + head.count(b"\n") + dropped_lines
    return LogText((Window(head), Window(b"".join(tail), first_line)), dropped)


def _is_file(stream: BinaryIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # not a file of the system's at all
        return False
