"""How long a service asks its callers to wait: Retry-After, and the same in words."""

from __future__ import annotations

from perdure.triage.evidence.matching import Hit
from perdure.triage.text.patterns import capturing
from perdure.triage.text.quantities import DURATION, to_seconds

LONGEST_S = 6 * 3600.0
"""A wish for more is cut here: who must wait for days is better told by a person."""

LINES_BEFORE, LINES_AFTER = 8, 8
"""So near the line of failure the header or sentence stands."""

_ASKED = (
    rf"(?i)retry[-_ ]?after['\"]?(?:[-_](?:seconds|ms))?['\"]?\s*[:=]?\s*[\['\"]*{DURATION}"
    rf"|(?:re)?try (?:again )?(?:your request )?(?:in|after|for)(?: (?:about|at least))? {DURATION}"
    rf"|retryDelay['\"]?\s*[:=]\s*['\"]?{DURATION}"
    rf"|(?:please |must )?wait (?:for |about |at least )*{DURATION} (?:before|and (?:re)?try)"
    rf"|(?:ratelimit|rate limit|quota)[-\w ]*(?:reset(?:s|[-_ ]after)?)(?: in)?['\"]?\s*[:=]?\s*['\"]?{DURATION}"
)


def asked_wait_s(hit: Hit) -> float:
    """What the service asks for in the line of a failure, or near it; 0 where it asks for nothing.

    A moment on the clock (a date, seconds since 1970) is not read: a log does not say by which clock.
    """
    lines = hit.block.scrubbed().split(b"\n")
    at = hit.line - hit.block.first_line
    near = [
        hit.text.encode(),
        *lines[max(0, at) : at + LINES_AFTER],
        *reversed(lines[max(0, at - LINES_BEFORE) : max(0, at)]),
    ]
    asked = (_asked(line) for line in near)
    return min(next((s for s in asked if s > 0.0), 0.0), LONGEST_S)


def _asked(line: bytes) -> float:
    """The wait that a line tells, in seconds; 0 where it tells none."""
    found = capturing(_ASKED).search(line[:4096])
    if found is None:
        return 0.0
    told = next(group for group in found.groups() if group is not None)
    seconds = to_seconds(told)
    if b"after-ms" in found.group().lower() or b"after_ms" in found.group().lower():
        seconds /= 1e3
    return seconds if seconds < 10 * LONGEST_S else 0.0
