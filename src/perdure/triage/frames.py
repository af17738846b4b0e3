"""The place in a job's own code that a Python traceback names, above the message of its exception."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.triage.clean import MAX_LINE_BYTES, decode, scrub, tidy
from perdure.triage.matching import Hit
from perdure.triage.patterns import capturing, compiled
from perdure.triage.prefixes import rank_of

LOOK_BACK_LINES, LOOK_BACK_BYTES = 600, 128 * 1024
"""So much before a message its traceback is looked for."""

_FRAME = r'^\s*File "([^"]{1,1000})", line \d{1,9}'
_NOT_OWN = r"(?:site|dist)-packages/|/lib(?:64)?/python\d|^<|/s?bin/[^/]*$"
"""Paths of libraries, of what was never a file, and of launchers."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a traceback that names a place in a file."""

    line: int
    text: str


def innermost_own(hit: Hit) -> Frame | None:
    """The innermost frame above a message whose file is no library's; None where the message has no traceback.

    Lines of other tasks between them are passed over.
    """
    block = hit.block
    data, start = block.window.data, max(0, block.start - LOOK_BACK_BYTES)
    lines = scrub(data[start : block.end]).split(b"\n")
    first = block.first_line - data.count(b"\n", start, block.start)
    at = min(hit.line - first, len(lines) - 1)
    task = rank_of(lines[at])
    for index in range(at - 1, max(-1, at - LOOK_BACK_LINES), -1):
        raw = lines[index][:MAX_LINE_BYTES]
        if rank_of(raw) != task:
            continue
        line = tidy(raw)
        if b"Traceback (most recent call last)" in line:
            return None
        found = capturing(_FRAME).search(line)
        if found and not compiled(_NOT_OWN).search(found[1]):
            return Frame(first + index, decode(line).strip())
    return None
