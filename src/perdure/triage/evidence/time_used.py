"""What messages tell in numbers of a time limit: how long a job or a command had run, and how long it might run."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.triage.text.patterns import capturing
from perdure.triage.text.quantities import SPAN, to_seconds

NEARLY, LITTLE_SHARE = 0.97, 0.8
"""A limit is what ended a job that had run for nearly all of it; of one with a fifth left it is not."""

_IS = r"(?: of| is| was)?[ :=]{1,3}"
_REACHED = r",? (?:has )?(?:exceed\w*|reached|over|of|out of|/|>=?)(?: the| its)?(?: max\w*)?(?: time)?(?: limit)?"
_PASSED = r"\b(?:elapsed|used|ran for|running for|after)"
_FORMS = (  # the time that had passed, then the limit; or the other way round
    (rf"(?i)\b(?:wall ?time|cput|run ?time|elapsed)(?: time)?{_IS}{SPAN}{_REACHED}{_IS}{SPAN}", False),
    (rf"(?i){_PASSED}{_IS}{SPAN}[^\d\n]{{1,30}}\blimit{_IS}{SPAN}", False),
    (rf"(?i)\b(?:time ?)?limit{_IS}{SPAN}[^\d\n]{{1,30}}{_PASSED}{_IS}{SPAN}", True),
)


@dataclass(frozen=True, slots=True)
class TimeUsed:
    """Seconds that had passed, and that there were."""

    elapsed_s: float
    limit_s: float

    @property
    def is_used_up(self) -> bool:
        return self.limit_s > 0 and self.elapsed_s >= NEARLY * self.limit_s

    @property
    def has_left(self) -> bool:
        """Whether the limit was too far away to be what ended it."""
        return self.elapsed_s < LITTLE_SHARE * self.limit_s

    @property
    def told(self) -> str:
        return f"{_minutes(self.elapsed_s)} of {_minutes(self.limit_s)} minutes"


def time_used(line: bytes) -> TimeUsed | None:
    """Read the figures of a message; None where it does not tell both.

    >>> used = time_used(b"=>> PBS: job killed: walltime 3612 exceeded limit 3600")
    >>> used.is_used_up, used.told, time_used(b"elapsed 00:10:00 of 24:00:00").has_left
    (True, '60 of 60 minutes', True)
    """
    for form, limit_first in _FORMS:
        if found := capturing(form).search(line):
            first, second = (to_seconds(group) for group in found.groups() if group is not None)
            return TimeUsed(second, first) if limit_first else TimeUsed(first, second)
    return None


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}" if seconds >= 600 or seconds % 60 == 0 else f"{seconds / 60:.1f}"
