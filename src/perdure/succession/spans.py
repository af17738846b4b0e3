"""How the links of a chain followed each other: waits, gaps and overlaps, and how it would have gone reactively."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkSpan:
    """When one link was submitted and ran. Instants are seconds since the epoch, 0 where they are not known."""

    number: int
    submit_s: float = 0.0
    start_s: float = 0.0
    end_s: float = 0.0
    runs_s: float = 0.0  # when its program began, which may have waited for its predecessor; 0: when its job began


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """How a link followed the one before it, in seconds; None where that is not known (yet)."""

    waited_s: float | None = None
    ran_s: float | None = None
    gap_s: float | None = None
    overlap_s: float | None = None
    reactive_gap_s: float | None = None  # had it been submitted at its predecessor's end, and waited as long as it did


@dataclass(frozen=True, slots=True)
class ChainSums:
    """Interruption and overlap of a chain in all, in seconds, and its interruption had it gone reactively."""

    gap_s: float
    overlap_s: float
    reactive_gap_s: float


def times_of(span: LinkSpan, before: LinkSpan | None) -> LinkTimes:
    """`before` is the last link before it that ran and ended.

    >>> first, second = LinkSpan(1, 0, 10, 100), LinkSpan(2, 50, 110, 200)
    >>> times_of(second, first).gap_s, times_of(second, first).reactive_gap_s
    (10, 60)
    """
    runs_s = span.runs_s or span.start_s
    waited_s = max(0.0, span.start_s - span.submit_s) if span.start_s and span.submit_s else None
    ran_s = span.end_s - runs_s if span.end_s and runs_s else None
    if before is None or not span.start_s:
        return LinkTimes(waited_s, ran_s)
    gap_s = max(0.0, runs_s - before.end_s)
    overlap_s = max(0.0, before.end_s - span.start_s)
    return LinkTimes(waited_s, ran_s, gap_s, overlap_s, gap_s if waited_s is None else max(gap_s, waited_s))


def all_times(spans: Iterable[LinkSpan]) -> list[LinkTimes]:
    """The times of each link of a chain; spans are in the order of their numbers."""
    found, before = [], None
    for span in spans:
        found.append(times_of(span, before))
        if span.start_s and span.end_s:
            before = span
    return found


def sums_of(times: Sequence[LinkTimes]) -> ChainSums:
    """Of all links of a chain together."""
    return ChainSums(
        sum(each.gap_s or 0.0 for each in times),
        sum(each.overlap_s or 0.0 for each in times),
        sum(each.reactive_gap_s or 0.0 for each in times),
    )
