"""Whose the lines of a file are, by who else may have written to it and when.

A path that others have too holds an attempt's lines alone only where nobody else ran alongside it or since.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

import re2
from msgspec import Struct

from perdure.model.jobs import Attempt
from perdure.model.output import OutputFile, OutputKind
from perdure.triage.text.clean import scrub
from perdure.triage.text.when import Form, stamp_of

OLD_S = 120.0
"""A file that was last written this long before a start is not that attempt's; clocks may be a minute apart."""
LATE_S = 5.0
"""A rank's file that was written this long after the end may be another job's."""
MAX_LINES = 200_000


class Span(Struct, frozen=True):
    """One attempt that wrote to a path. `end_s` is infinite while it runs."""

    job_id: str
    start_s: float
    end_s: float


def with_owner(
    file: OutputFile, attempt: Attempt, others: Iterable[Span], ids: Iterable[str], appends: bool
) -> OutputFile:
    """The file with those of its lines that are surely the attempt's; in `doubt`, and whole, where none surely are.

    `others` are the attempts that had the same path, `ids` the numbers that this attempt's lines may carry and no
    other's: none where the job began before, and its file was not cut since; `appends` tells that the file was not cut
    when the attempt began.
    """
    end_s = attempt.end_s if attempt.end_s is not None else math.inf
    spans = tuple(others)
    doubt = _doubt(file, attempt, end_s, spans, appends)
    if not doubt:
        return file
    mine = Span(attempt.id.job_id, attempt.start_s, end_s)
    meanwhile = tuple(span for span in spans if span.end_s >= attempt.start_s)
    own = own_lines(file, mine, meanwhile, tuple(ids))
    return replace(file, head=b"", tail=own) if own else replace(file, doubt=doubt)


def _doubt(file: OutputFile, attempt: Attempt, end_s: float, spans: tuple[Span, ...], appends: bool) -> str:
    """Why the lines may be another's; "" where they are the attempt's own."""
    start_s = attempt.start_s
    if file.end > file.start and file.written_s < start_s - OLD_S:
        return "was last written before this attempt began"
    beside = [s for s in spans if s.start_s == start_s or (s.start_s < end_s and s.end_s > start_s)]
    if beside:
        how = "may hold lines of" if file.kind is OutputKind.RANK else "is shared with"
        return f"{how} {_named(beside, attempt)}"
    later = [s for s in spans if s.start_s >= end_s]
    if later:
        return f"has been {'written to' if appends else 'overwritten'} since by {_named(later, attempt)}"
    if file.kind is OutputKind.RANK and file.written_s > end_s + LATE_S:
        return "was still written to after this attempt ended"
    if appends and not file.cut and file.start == 0 and (file.birth_s is None or file.birth_s < start_s):
        return "may hold lines from before this attempt, as it may be appended to"
    return ""


def _named(spans: list[Span], attempt: Attempt) -> str:
    last = max(spans, key=lambda span: span.start_s)
    if last.job_id == attempt.id.job_id:
        return "a newer attempt"
    more = len({span.job_id for span in spans} - {attempt.id.job_id}) - 1
    return f"job {last.job_id}" + (f" and {more} more" if more else "")


def own_lines(file: OutputFile, mine: Span, others: tuple[Span, ...], ids: tuple[str, ...]) -> bytes:
    """The lines that carry one of the attempt's ids, or a time at which only it ran, with what follows them.

    An id proves nothing on a line whose time is not the attempt's: the job may have begun before. What follows a line
    without a time of its own counts where nobody else could have written it.
    """
    numbers = b"|".join(re2.escape(i.encode()) for i in ids)
    named = re2.compile(rb"(?i)\bjob(?:[ _-]?id)?[ =:#]{0,3}(?:" + numbers + rb")\b" if numbers else rb"[^\s\S]")
    lines = scrub(file.text).split(b"\n")[-MAX_LINES:]
    stamps = [_seconds(line) for line in lines]
    offset_s = _offset_s([stamp for stamp in stamps if stamp is not None], file.written_s)
    kept: list[bytes] = []
    pending: list[bytes] = []
    inside = False
    for line, stamp in zip(lines, stamps, strict=True):
        if stamp is not None:
            is_own = _only_mine(stamp - offset_s, mine, others)
            if inside and is_own:
                kept += pending
            pending, inside = [], is_own
            if is_own or (_is_within(stamp - offset_s, mine) and named.search(line)):
                kept.append(line)
        elif inside:
            pending.append(line)
        elif named.search(line):
            kept.append(line)
    if inside and not others:
        kept += pending
    return b"\n".join(kept).strip(b"\n")


def _seconds(line: bytes) -> float | None:
    stamp = stamp_of(line)
    return stamp.seconds if stamp is not None and stamp.form is Form.DATE else None


def _offset_s(stamps: list[float], written_s: float) -> float:
    """How far the times in a file are ahead of UTC: that of this machine, or none, whichever its last write fits."""
    local = datetime.fromtimestamp(written_s).astimezone().utcoffset()
    offsets = (local.total_seconds() if local else 0.0, 0.0)
    return min(offsets, key=lambda offset: abs(written_s - (stamps[-1] - offset))) if stamps else 0.0


def _only_mine(time_s: float, mine: Span, others: tuple[Span, ...]) -> bool:
    """Whether only this attempt ran at an instant."""
    return _is_within(time_s, mine) and not any(_is_within(time_s, span) for span in others)


def _is_within(time_s: float, span: Span) -> bool:
    """Slurm tells starts and ends in whole seconds."""
    return span.start_s <= time_s < span.end_s + 1.0
