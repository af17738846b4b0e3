"""The end of a log for the page: cleaned, cut into lines, the evidence marked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.triage.text.clean import PIECE, scrub
from perdure.triage.verdict import CauseRole, Evidence

MAX_LINES = 500
MAX_LINE = 2000
GAP = "gap"  # the role of the line that stands for those left out
QUOTED = 160  # this many characters of a piece of evidence are looked for


@dataclass(frozen=True, slots=True)
class LogLine:
    number: int | None  # 1-based; None where the beginning of the log is not at hand
    text: str
    role: str  # of the evidence that is here, `GAP`, or ""


def log_lines(raw: bytes, evidence: Sequence[Evidence], *, whole: bool) -> tuple[LogLine, ...]:
    """The last lines of `raw`; `whole` where that is the log from its first line on.

    Where what names the cause lies before them, half of the lines are those around it; one says how many are left out.
    """
    lines = [line.rsplit(PIECE, 1)[-1] for line in scrub(raw).split(b"\n")]
    if lines and not lines[-1]:
        lines.pop()
    marks = [(item.text.strip()[:QUOTED], item.role) for item in evidence if item.line and item.text.strip()]
    first = max(0, len(lines) - MAX_LINES)
    at = _cause(lines[:first], marks)
    if at is None:
        return _shown(lines, range(first, len(lines)), marks, whole)
    half = MAX_LINES // 2
    above = range(max(0, at - half // 2), max(0, at - half // 2) + half)
    below = range(max(above.stop, len(lines) - half), len(lines))
    gap = LogLine(None, f"… {below.start - above.stop:,} lines left out …", GAP)
    return (*_shown(lines, above, marks, whole), gap, *_shown(lines, below, marks, whole))


def _cause(lines: Sequence[bytes], marks: Sequence[tuple[str, str]]) -> int | None:
    """Where the root cause is among `lines`, if it is."""
    roots = [words.encode() for words, role in marks if role == CauseRole.ROOT]
    return next((at for at, line in enumerate(lines) if any(words in line for words in roots)), None)


def _shown(lines: Sequence[bytes], places: range, marks: Sequence[tuple[str, str]], whole: bool) -> tuple[LogLine, ...]:
    found = []
    for at in places:
        text = lines[at][: 4 * MAX_LINE].decode("utf-8", "replace")[:MAX_LINE]
        role = next((role for words, role in marks if words in text), "")
        found.append(LogLine(at + 1 if whole else None, text, role))
    return tuple(found)
