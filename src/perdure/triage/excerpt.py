"""The part of a log that tells of its end: the block of failure lines that was not survived, and the tail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from perdure.triage.clean import decode, is_advice, scrub, tidy
from perdure.triage.logtext import LogText
from perdure.triage.matching import Hit
from perdure.triage.rule import Force
from perdure.triage.verdict import Role

CALM_LINES = 150
"""So many lines without a sign of failure, between two signs, say that the first was survived."""

TAIL_BYTES = 8192
TAIL_LINES = 160


def last_block(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits of the last run of failure lines: what came long before it was survived.

    The resource manager's own words are never too old: they end a job.
    """
    start = 0
    for i in range(len(hits) - 1, 0, -1):
        if hits[i].line - hits[i - 1].line > CALM_LINES:
            start = i
            break
    decisive = [hit for hit in hits[:start] if hit.cause.force is Force.DECISIVE and hit.cause.role is Role.ROOT]
    return [*decisive, *hits[start:]]


def tail(text: LogText, size: int = TAIL_BYTES, lines: int = TAIL_LINES) -> str:
    """The last cleaned lines of a log, at most `size` bytes of it and `lines` lines; folds what repeats."""
    if not text.windows:
        return ""
    raw = scrub(text.windows[-1].data[-4 * size :]).split(b"\n")
    kept: list[bytes] = []
    seen: set[bytes] = set()
    left = size
    for piece in reversed(raw):
        line = tidy(piece).rstrip()
        if not line.strip() or line in seen or is_advice(line):
            continue
        seen.add(line)
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return "\n".join(decode(line) for line in reversed(list(islice(kept, lines))))
