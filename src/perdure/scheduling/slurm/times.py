"""Times as Slurm's settings and options write them: a bare number is minutes."""

from __future__ import annotations

import re2

_TIME = re2.compile(r"(?:(\d{1,6})-)?(\d{1,8})(?::(\d{1,4}))?(?::(\d{1,4}))?")
_ENDLESS = ("UNLIMITED", "INFINITE")


def time_s(text: str) -> float | None:
    """Seconds of ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` or ``D-H:M:S``; None for UNLIMITED. Raises `ValueError`.

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
