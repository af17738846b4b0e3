"""The end of a log for the page: cleaned, cut into lines, the evidence marked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.triage.clean import PIECE, scrub
from perdure.triage.verdict import Evidence

MAX_LINES = 500
MAX_LINE = 2000
QUOTED = 160  # so many characters of a piece of evidence are looked for


@dataclass(frozen=True, slots=True)
class LogLine:
    number: int | None  # 1-based; None where the beginning of the log is not at hand
    text: str
    role: str  # of the evidence that stands here, or ""


def log_lines(raw: bytes, evidence: Sequence[Evidence], *, whole: bool) -> tuple[LogLine, ...]:
    """The last lines of `raw`; `whole` where that is the log from its first line on."""
    lines = [line.rsplit(PIECE, 1)[-1] for line in scrub(raw).split(b"\n")]
    if lines and not lines[-1]:
        lines.pop()
    first = max(0, len(lines) - MAX_LINES)
    marks = [(item.text.strip()[:QUOTED], item.role) for item in evidence if item.line and item.text.strip()]
    found = []
    for number, line in enumerate(lines[first:], first + 1):
        text = line[: 4 * MAX_LINE].decode("utf-8", "replace")[:MAX_LINE]
        role = next((role for words, role in marks if words in text), "")
        found.append(LogLine(number if whole else None, text, role))
    return tuple(found)
