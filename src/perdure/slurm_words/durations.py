"""Durations as Slurm writes them: in records, in accounting, and in settings and options.

The three differ in what they leave out and in what a bare number is, so each has a reader of its own.
"""

from __future__ import annotations

from functools import lru_cache

import re2

_DURATION = re2.compile(r"(?:(\d{1,6})-)?(\d{1,6}):(\d\d)(?::(\d\d))?")
_ELAPSED = re2.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,2}):(\d{2})(?:\.\d{1,6})?")
_TIME = re2.compile(r"(?:(\d{1,6})-)?(\d{1,8})(?::(\d{1,4}))?(?::(\d{1,4}))?")
_ENDLESS = ("UNLIMITED", "INFINITE")
UNLIMITED = ("UNLIMITED", "Partition_Limit", "INVALID", "")
"""No limit, in accounting."""


@lru_cache(maxsize=1024)
def duration_s(text: str) -> float | None:
    """Read ``[D-]H:MM[:SS]`` of a record (``scontrol show``). None for UNLIMITED, Partition_Limit and anything else.

    >>> duration_s("1-00:30:00")
    88200.0
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, first, second, third = (int(part or 0) for part in found.groups())
    if found[4] is None and not found[1]:  # M:SS
        return float(first * 60 + second)
    return float(days * 86400 + first * 3600 + second * 60 + third)


def elapsed_s(text: str) -> float:
    """Read ``[D-][HH:]MM:SS`` of accounting (``sacct``). Raises `ValueError`.

    >>> elapsed_s("1-00:30:00"), elapsed_s("00:01.500")
    (88200.0, 1.0)
    """
    found = _ELAPSED.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not [D-]HH:MM:SS")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


def time_s(text: str) -> float | None:
    """Read ``M`` (minutes), ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` or ``D-H:M:S`` of a setting or option.

    None for UNLIMITED. Raises `ValueError`.

    >>> time_s("90"), time_s("2-12"), time_s("1:30:00"), time_s("10:30"), time_s("UNLIMITED")
    (5400.0, 216000.0, 5400.0, 630.0, None)
    """
    if text.upper() in _ENDLESS:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time such as 1-12:00:00")
    first, second, third = int(found[2]), int(found[3] or 0), int(found[4] or 0)
    if found[1] is not None:
        return float(int(found[1]) * 86_400 + first * 3600 + second * 60 + third)
    return float(first * 3600 + second * 60 + third if found[4] is not None else first * 60 + second)
