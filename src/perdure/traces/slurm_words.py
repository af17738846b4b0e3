"""Slurm's words in accounting texts: durations, limits and resources (TRES)."""

from __future__ import annotations

from functools import lru_cache

import re2

_GPUS = re2.compile(r"(?:^|,)gres/gpu(?::([^=,]{1,64}))?=(\d{1,9})")
_DURATION = re2.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,2}):(\d{2})(?:\.\d{1,6})?")
UNLIMITED = ("UNLIMITED", "Partition_Limit", "INVALID", "")


@lru_cache(maxsize=1 << 16)
def gpus(tres: str) -> tuple[int, str]:
    """How many GPUs a list of resources names, and of which kind; (0, "") where it names none.

    Where counts with and without a kind stand side by side, the one without holds the others.

    >>> gpus("billing=97,cpu=1,gres/gpu=8,gres/gpu:h100=8"), gpus("cpu=4,node=1")
    ((8, 'h100'), (0, ''))
    """
    plain = typed = 0
    kinds = []
    for kind, count in _GPUS.findall(tres):
        if kind:
            typed += int(count)
            kinds.append(kind)
        else:
            plain += int(count)
    return max(plain, typed), "|".join(sorted(set(kinds)))


def duration_s(text: str) -> float:
    """Read ``[D-][HH:]MM:SS``. Raises `ValueError`.

    >>> duration_s("1-00:30:00"), duration_s("00:01.500")
    (88200.0, 1.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not [D-]HH:MM:SS")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
