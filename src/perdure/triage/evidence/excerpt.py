"""A log reduced to what shows how it ended: the first block of failure lines, what a good run never said, the tail.

Progress bars, prefixes and advice are gone; lines that are equal without them are one, and say how often and from
which tasks they came.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from perdure.triage.evidence.goodrun import GoodRun
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Cause, Force
from perdure.triage.text.clean import decode, is_advice, scrub, tidy
from perdure.triage.text.logtext import LogText, Source, TextWindow
from perdure.triage.text.prefixes import ranges, rank_before
from perdure.triage.verdict import CauseRole

SIZE_BYTES, MAX_LINES = 8192, 160
RAW_END_BYTES, RAW_LINES = 128 * 1024, 1500
"""How much of a log's end is gone through for a tail that repeats itself."""

LINES_BEFORE, LINES_AFTER = 4, 40
"""The block of a failure, around the first line that a rule matched."""

MAX_NEW = 24
"""At most this many lines that the last good run had not are kept, one a template."""


def last_block(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits of the last run of failure lines of each file: what came long before it was survived.

    The resource manager's own words are never too old: they end a job.
    """
    last: dict[Source | None, int] = {}
    for hit in hits:
        source = hit.block.window.source
        last[source] = max(hit.run, last.get(source, 0))
    return [hit for hit in hits if hit.run == last[hit.block.window.source] or ends_a_job(hit.cause)]


def ends_a_job(cause: Cause) -> bool:
    """Whether it is the resource manager's own word that it ended the job."""
    return cause.force is Force.DECISIVE and cause.role is CauseRole.ROOT


@dataclass(slots=True)
class Line:
    """A line that was kept, and those folded into it."""

    number: int  # in its file; of the last of them, in a tail
    text: bytes  # as its program wrote it
    times: int = 1
    ranks: tuple[str, ...] = ()  # the tasks that it came from, as far as they say

    @property
    def told(self) -> str:
        """The line for a person: with how often it came, and from which tasks."""
        count = f"  ({self.times} times)" if self.times > max(1, len(self.ranks)) else ""
        who = f"  ({ranges(self.ranks)})" if len(self.ranks) > 1 else ""
        return decode(self.text) + (who or count)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is left of a log, in its order."""

    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        """The lines as a model reads them."""
        return "\n".join(decode(line.text) for line in self.lines)


def excerpt(text: LogText, hits: Sequence[Hit] = (), good: GoodRun | None = None, size: int = SIZE_BYTES) -> Excerpt:
    """Reduce a log to at most `size` bytes and `MAX_LINES` lines; the whole of it where that is short.

    `hits` are what rules found, those that count; of a log in several files the one with the first of them gives
    the tail. `good` is the job's last good run, if it is known.
    """
    if not text.windows:
        return Excerpt(())
    first = min(hits, key=lambda hit: (hit.cause.role is not CauseRole.ROOT, hit.order), default=None)
    window = _last_window(text, first)
    start = max(0, len(window.data) - RAW_END_BYTES)
    short = len(window.data) <= 2 * size  # then one look at all of it is cheaper than one at each line
    advises = not short or is_advice(window.data)
    end, whole = _folded(reversed(_numbered(window, start, len(window.data))), size, advises)
    if whole and start == 0 and window.first_line == 1:
        return Excerpt(end)
    seen = {line.text for line in end}
    before = end[0].number if end and first and first.block.window is window else math.inf  # what follows is in the end
    block = [line for line in _block(first, size // 2, before) if line.text not in seen] if first else []
    seen.update(line.text for line in block)
    new = [Line(line.number, line.text) for line in (good.new_lines(text, MAX_NEW) if good else ())]
    return Excerpt(_composed(block, [line for line in new if line.text not in seen], end, size))


def _last_window(text: LogText, first: Hit | None) -> TextWindow:
    """The end of the file that the first failure is in; without one, of the first file."""
    source = (first.block.window if first else text.windows[0]).source
    return next(window for window in reversed(text.windows) if window.source is source)


def _numbered(window: TextWindow, start: int, end: int) -> list[tuple[int, bytes]]:
    """The lines of a stretch of a window, with their numbers."""
    first = window.first_line + window.data.count(b"\n", 0, start)
    return list(enumerate(scrub(window.data[start:end]).split(b"\n"), first))


def _folded(numbered: Iterable[tuple[int, bytes]], size: int, advises: bool = True) -> tuple[tuple[Line, ...], bool]:
    """The first of the given lines that fit into `size` bytes, what repeats as one, in order; and whether all fit.

    Advice is left out; none is looked for unless one of the lines `advises`.
    """
    kept: dict[bytes, Line] = {}
    met: dict[bytes, Line | None] = {}
    left, whole = size, True
    for number, raw in islice(numbered, RAW_LINES):
        if raw in met:
            if (again := met[raw]) is not None:
                again.times += 1
            continue
        text = tidy(raw).rstrip()
        line = kept.get(text)
        if line is not None:
            line.times += 1
        elif text.strip() and not (advises and is_advice(text)):
            left -= len(text) + 1
            if left < 0 or len(kept) == MAX_LINES:
                whole = False
                break
            line = kept[text] = Line(number, text)
        if line is not None and len(raw) > len(text) and (rank := rank_before(raw, text)) and rank not in line.ranks:
            line.ranks = (*line.ranks, rank)
        met[raw] = line
    return tuple(sorted(kept.values(), key=lambda line: line.number)), whole


def _block(first: Hit, size: int, before: float) -> tuple[Line, ...]:
    """The lines around a failure, from a few before it, up to the line of number `before`."""
    lines = _numbered(first.block.window, first.block.start, first.block.end)
    at = first.line - lines[0][0]
    around = lines[max(0, at - LINES_BEFORE) : at + LINES_AFTER]
    return _folded((each for each in around if each[0] < before), size)[0]


def _composed(block: Sequence[Line], new: Sequence[Line], end: Sequence[Line], size: int) -> tuple[Line, ...]:
    """Block, new lines and tail in order, as much of the tail's beginning left out as the others need."""
    others = sorted([*block, *new], key=lambda line: line.number)
    left = size - sum(len(line.text) + 1 for line in others)
    kept: list[Line] = []
    for line in reversed(end):
        left -= len(line.text) + 1
        if left < 0 or len(kept) + len(others) >= MAX_LINES:
            break
        kept.append(line)
    return (*others, *reversed(kept))
