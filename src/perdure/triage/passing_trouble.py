"""A trouble that passes, told near the line for which a job would be stopped: two witnesses, and no stop.

A file that is missing, damaged or refused, and a program that could not be built, are often what a service or a storage
left that failed for a while. Where the documentation of a system (`catalogue`) says of a line nearby that it means
such a failure, or an exception's words do (`grammar`), the cause stays the same and the job gets one probing retry.
What wrong code alone brings about (shapes, types, names, memory that a model needs) is no such consequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from perdure.triage.catalogue import own_catalogue
from perdure.triage.evidence.context import Circumstance
from perdure.triage.evidence.matching import Hit
from perdure.triage.evidence.rule import Force
from perdure.triage.grammar import PASSING, own_grammar
from perdure.triage.text.clean import ADVICE, CLEARED, INFORMED, SURVIVED, decode, scrub, tidy
from perdure.triage.text.log_levels import is_told
from perdure.triage.text.patterns import compiled, says_any
from perdure.triage.verdict import CauseRole

NEAR_LINES = 100
"""A trouble is looked for in so many lines before the decisive one, and after it."""

NEAR_BYTES = 16 * 1024
"""So much before its block of failure lines is looked at, and after it."""

SHOWN = 160

_SERVED = frozenset({"net", "obj_store", "launcher", "fs", "lock", "tracker", "k8s_infra", "license"})
"""Categories of what many share: services, storage, locks and managers."""

_OF_NO_TROUBLE = frozenset({"syntax", "shape", "numeric", "gpu_oom", "time_limit", "dist_config", "quota"})
"""Causes that no such trouble brings about, or that bring it about: whoever owes a service is answered 429."""

_CLASS = r"^\s*(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): "
_IGNORED = b"Exception ignored in"
_GONE_ON = r"(?i)\b(?:ignored|ignoring|skipp(?:ed|ing)|not needed|asked again|falling back|fallback)\b"


def trouble_near(primary: Hit, hits: Sequence[Hit], passed: Set[int]) -> tuple[Circumstance, ...]:
    """The first line near `primary` that tells of a trouble which passes, as a circumstance of no weight; () without.

    `hits` are lines that rules know; of those that rules read as something else only the documentation is asked.
    `passed` are numbers of lines that the job got over.
    """
    cause = primary.cause
    if cause.force is Force.DECISIVE or not _OF_NO_TROUBLE.isdisjoint((cause.category, cause.wider)):
        return ()
    ruled = {hit.line for hit in hits if hit.block.window is primary.block.window and not _is_trouble(hit)}
    ignored = False
    for number, raw in _lines_near(primary):
        ignored = ignored or _IGNORED in raw
        if number in passed or not _may_pass(raw, number in ruled):
            continue
        line = tidy(raw)
        if ignored and _IGNORED not in raw and compiled(_CLASS).search(line):
            ignored = False  # it ends the traceback that Python ignored
        elif _passes(line, number in ruled) and not is_told(raw):
            told = decode(line).strip()[:SHOWN]
            return (Circumstance("passing-trouble", f"line {number} tells of a trouble that may pass: {told}", 0.0),)
    return ()


def _may_pass(raw: bytes, ruled: bool) -> bool:
    """A first look at a line, which most do not pass."""
    return own_catalogue().may_know(raw) or not (ruled or (b"Error" not in raw and b"Exception" not in raw))


def _is_trouble(hit: Hit) -> bool:
    return hit.cause.role is CauseRole.ROOT and hit.cause.p_transient >= PASSING


def _lines_near(primary: Hit) -> Iterator[tuple[int, bytes]]:
    """The lines around a hit, with their numbers."""
    block = primary.block
    data = block.window.data
    start = max(0, block.start - NEAR_BYTES)
    first = block.first_line - data.count(b"\n", start, block.start)
    lines = scrub(data[start : block.end + NEAR_BYTES]).split(b"\n")
    at = primary.line - first
    for index in range(max(0, at - NEAR_LINES), min(len(lines), at + NEAR_LINES + 1)):
        yield first + index, lines[index]


def _passes(line: bytes, ruled: bool) -> bool:
    """Whether a line tells of a service, a storage or a manager that fails for a while."""
    may_know = own_catalogue().may_know(line)
    if not may_know and (ruled or not compiled(_CLASS).search(line)):
        return False
    if says_any((ADVICE, CLEARED, INFORMED, SURVIVED, _GONE_ON), line):
        return False
    known = own_catalogue().find(line) if may_know else None
    if known is None and not ruled and (parsed := own_grammar().parse(line)) is not None:
        known = own_grammar().means(parsed)
    return known is not None and known.proven and known.p_transient >= PASSING and known.category in _SERVED
