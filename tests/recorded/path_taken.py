"""Which way through the product a call takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def path_taken(inside: tuple[str, ...] = ("/perdure/",)) -> Iterator[set[tuple[str, int, int]]]:
    """The steps from line to line, of files in whose path one of these stands."""
    steps: set[tuple[str, int, int]] = set()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        file = frame.f_code.co_filename
        if not any(part in file for part in inside):
            return None
        last = frame.f_lineno

        def line(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal last
            steps.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    sys.settrace(trace)
    try:
        yield steps
    finally:
        sys.settrace(None)
