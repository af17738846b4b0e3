"""One line of each shape that a log holds: all that templates need to see, at the speed of sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest

from perdure.triage.text.clean import tidy
from perdure.triage.text.logtext import LogText, TextWindow, blocks
from perdure.triage.text.masking import shapes

NEW_PER_BLOCK = 40
"""Of a block this many shapes at most are looked at; the others are passed over, and looked at when they come again."""

MAX_SHAPES = 1 << 16
"""This many shapes are remembered; then all are forgotten, and some lines are seen twice."""


@dataclass(frozen=True, slots=True)
class DistinctLine:
    """The first line of its shape, among those that were looked at."""

    window: TextWindow
    number: int
    text: bytes  # without prefixes and progress bars; never empty


def distinct_lines(text: LogText) -> Iterator[DistinctLine]:
    """Yield the lines of a log in order, of each shape (`masking.shapes`) one."""
    seen: set[int] = set()
    for window in text.windows:
        for block in blocks(window):
            data = block.scrubbed()
            for index, line in _new_in(data, seen):
                tidied = tidy(line).strip()
                if tidied:
                    yield DistinctLine(window, block.first_line + index, tidied)


def _new_in(data: bytes, seen: set[int]) -> Iterator[tuple[int, bytes]]:
    """The place and the line of the first of each shape that was not seen before; adds them to `seen`."""
    hashes = [hash(shape) for shape in shapes(data).split(b"\n")]
    first = dict(zip(reversed(hashes), range(len(hashes) - 1, -1, -1), strict=True))
    unseen = nsmallest(NEW_PER_BLOCK, (first[shape] for shape in first.keys() - seen))
    if not unseen:
        return
    if len(seen) > MAX_SHAPES:
        seen.clear()
    seen.update(hashes[index] for index in unseen)
    lines = data.split(b"\n")
    for index in unseen:
        yield index, lines[index]
