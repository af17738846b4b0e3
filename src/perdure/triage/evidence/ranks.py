"""Failures of many tasks in one order, so that the task that broke first is named.

The times that lines carry decide. Where they carry none, and each task has a file of its own, it is the order in
which those were last written, since who broke first usually fell silent first; in one file, the order of the lines.
A line without a time is given that of the last line before it: it may be later than it seems.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Force
from perdure.triage.text.clean import WARNED, scrub
from perdure.triage.text.logtext import TextBlock
from perdure.triage.text.patterns import compiled
from perdure.triage.text.prefixes import named
from perdure.triage.text.when import Stamp, comparable, may_hold_time, stamp_of
from perdure.triage.verdict import CauseRole

LOOK_BACK_LINES, BEFORE_BYTES = 200, 16 * 1024
"""A time is looked for in this many lines before a hit, and this many bytes before its block."""


class HitOrder(StrEnum):
    """By what the tasks' hits were put in one order."""

    TIMES = "by the times in the log"
    LAST_WRITES = "by when their logs were last written: the lines carry no times"
    LINES = "by the order of the lines"


class Merged(Struct, frozen=True):
    """The hits of all tasks, in one order."""

    hits: tuple[Hit, ...]
    order: HitOrder = HitOrder.LINES

    def place(self, hit: Hit) -> str:
        """The file that a hit is in, or the task that wrote it, for a person; "" for a log of one task."""
        if (source := hit.block.window.source) is not None:
            return source.name
        return named(hit.rank) if hit.rank and len({other.rank for other in self.hits if other.rank}) > 1 else ""

    def told(self, first: Hit) -> str:
        """Half a sentence that names the task of `first` and which broke first; "" for a log of one task."""
        others = {hit.rank for hit in self.hits if hit.rank} - {first.rank}
        if not first.rank or not others:
            return ""
        alike = {hit.rank for hit in self.hits if hit.cause.name == first.cause.name} & others
        if alike == others:
            return f"{len(others) + 1} ranks alike, {named(first.rank)} first ({self.order})"
        own = [hit for hit in self.hits if hit.rank and _complains(hit)]
        before = min(own, key=lambda hit: hit.order, default=first)
        if before.rank != first.rank and before.order < first.order:
            return f"this is of {named(first.rank)}; {named(before.rank)} complained before ({self.order})"
        return f"{named(first.rank)} broke first, then {_some(sorted(others, key=_by_number))} ({self.order})"


def _complains(hit: Hit) -> bool:
    """Whether a task says of itself that it failed; a warning does not."""
    if hit.cause.role is CauseRole.CASCADE or hit.cause.force is Force.FAINT:
        return False
    return not (hit.warns or compiled(WARNED).search(hit.text.encode()))


MOST_NAMED = 3


def _some(ranks: Sequence[str]) -> str:
    if len(ranks) > MOST_NAMED:
        return f"{len(ranks)} others"
    return " and ".join(named(rank) for rank in ranks)


def _by_number(rank: str) -> tuple[int, str]:
    return (int(rank), "") if rank.isdigit() else (1 << 62, rank)


def merged(hits: Sequence[Hit]) -> Merged:
    """Put the hits of all tasks in one order; `Hit.order` is recounted."""
    several_ranks = len({hit.rank for hit in hits if hit.rank}) > 1
    if not several_ranks and len({hit.block.window.source for hit in hits}) < 2:
        return Merged(tuple(hits))
    stamps = _stamps(hits)
    if None not in stamps:
        return Merged(_ordered(hits, comparable([stamp for stamp in stamps if stamp])), HitOrder.TIMES)
    written = [hit.block.window.source.written_s for hit in hits if hit.block.window.source]
    if several_ranks and len(written) == len(hits):  # streams of one task belong together
        return Merged(_ordered(hits, written), HitOrder.LAST_WRITES)
    return Merged(tuple(hits))


def _ordered(hits: Sequence[Hit], seconds: Sequence[float]) -> tuple[Hit, ...]:
    """By time, those of one file in the order of its lines: an earlier time after a later one counts as the later."""
    latest: dict[str, float] = {}
    keys = []
    for hit, time in zip(hits, seconds, strict=True):
        source = hit.block.window.source
        if source is not None:
            time = latest[source.name] = max(time, latest.get(source.name, time))
        keys.append((time, hit.order))
    by_time = sorted(zip(keys, hits, strict=True), key=lambda pair: pair[0])
    return tuple(replace(hit, order=order) for order, (_, hit) in enumerate(by_time))


def _stamps(hits: Sequence[Hit]) -> list[Stamp | None]:
    """The time of each hit: its line's own, or that of the last line before it in its file that has one."""
    clocks: dict[tuple[int, int], _Clock] = {}
    found = []
    for hit in hits:
        block = hit.block
        key = (id(block.window), block.start)
        if key not in clocks:
            clocks[key] = _Clock(block)
        found.append(clocks[key].at(hit.line))
    return found


class _Clock:
    """The times of the lines of one block, looked for as they are asked for."""

    def __init__(self, block: TextBlock) -> None:
        data, before = block.window.data, max(0, block.start - BEFORE_BYTES)
        scrubbed = scrub(data[before : block.end])
        self._has_times = may_hold_time(scrubbed)
        self._lines = scrubbed.split(b"\n")
        self._first = block.first_line - data.count(b"\n", before, block.start)
        self._known: dict[int, Stamp | None] = {}

    def at(self, number: int) -> Stamp | None:
        """The time of a line, or of the nearest before it."""
        if not self._has_times:
            return None
        index = min(number - self._first, len(self._lines) - 1)
        walked, found = [], None
        for i in range(index, max(-1, index - LOOK_BACK_LINES), -1):
            if i in self._known:
                found = self._known[i]
                break
            walked.append(i)
            if (found := stamp_of(self._lines[i])) is not None:
                break
        self._known.update(dict.fromkeys(walked, found))
        return found
