"""The fewest changes of jobs' priorities after which a resource manager considers jobs in a wanted order."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class PriorityStanding(NamedTuple):
    """A waiting job as the manager sees it. It considers the highest priority first; of equals who came first."""

    seen: int  # its priority now; at least 1
    base: int  # what that would be without our doing
    submit_s: float
    number: int


def wanted_priorities(jobs: Sequence[PriorityStanding]) -> list[int]:
    """Priorities for jobs that are given in the wanted order: those that have to move are as few as possible.

    None is above the highest base among them, so that nobody else's job waits longer for them; only where that many
    different values do not fit between it and 1 they reach above it. Where equals are in order by themselves they stay
    equals: of two rules for these, by submit and by number, both must agree.

    With `d` the number of places where the order of arrival is broken, a priority `v` is in order where ``v + d`` never
    rises. So a longest part of that kind stays, and the others are spread evenly between their neighbours, which
    leaves room for those who come later.

    >>> three = [PriorityStanding(5, 5, 0, 1), PriorityStanding(9, 9, 1, 2), PriorityStanding(4, 4, 2, 3)]
    >>> wanted_priorities(three)
    [9, 9, 4]
    """
    if not jobs:
        return []
    breaks = _breaks(jobs)
    levels = [job.seen + broken for job, broken in zip(jobs, breaks, strict=True)]
    bottom = 1 + breaks[-1]
    top = max(bottom, *(job.base for job in jobs))
    kept = _longest_falling(levels, bottom, top)
    least = min(job.base for job in jobs) + breaks[-1]
    return [level - broken for level, broken in zip(_filled(levels, kept, bottom, top, least), breaks, strict=True)]


def _breaks(jobs: Sequence[PriorityStanding]) -> list[int]:
    """How many times, up to each job, one comes before another that came earlier."""
    found = [0]
    for before, after in itertools.pairwise(jobs):
        in_order = before.submit_s <= after.submit_s and before.number < after.number
        found.append(found[-1] + (not in_order))
    return found


def _longest_falling(levels: Sequence[int], bottom: int, top: int) -> list[int]:
    """Places of a longest part that never rises, of those within the bounds."""
    tails: list[int] = []  # negated last level of the best part of each length
    ends: list[int] = []  # its place
    before: dict[int, int] = {}
    for place, level in enumerate(levels):
        if not bottom <= level <= top:
            continue
        length = bisect_right(tails, -level)
        before[place] = ends[length - 1] if length else -1
        tails[length : length + 1] = [-level]
        ends[length : length + 1] = [place]
    found = []
    place = ends[-1] if ends else -1
    while place >= 0:
        found.append(place)
        place = before[place]
    return found[::-1]


def _filled(levels: Sequence[int], kept: Sequence[int], bottom: int, top: int, least: int) -> list[int]:
    """The levels with those that are not kept spread evenly between their neighbours; the last down to `least`."""
    found = list(levels)
    begin, high = 0, top
    for edge in (*kept, len(levels)):
        is_last = edge == len(levels)
        low = max(bottom, min(high, least)) if is_last else levels[edge]
        steps = max(1, edge - begin + (not is_last))
        for place in range(begin, edge):
            found[place] = high - (high - low) * (place - begin + 1) // steps
        begin, high = edge + 1, low
    return found
