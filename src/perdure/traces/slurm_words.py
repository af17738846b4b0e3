"""Slurm's words in accounting texts: durations, limits, resources (TRES), and how a job ended."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import re2
from numpy.typing import NDArray

from perdure.model.table import TableEnding
from perdure.traces.texts import mapped

_GPUS = re2.compile(r"(?:^|,)gres/gpu(?::([^=,]{1,64}))?=(\d{1,9})")
_DURATION = re2.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,2}):(\d{2})(?:\.\d{1,6})?")
_FAILURES = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL", "SPECIAL_EXIT")
_ENDINGS = {
    "COMPLETED": TableEnding.PASSED,
    **dict.fromkeys(
        ("CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED", "PREEMPTED", "REQUEUED", "RESIZING"), TableEnding.KILLED
    ),
    **dict.fromkeys(_FAILURES, TableEnding.FAILED),
}
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


def slurm_ending(word: str) -> TableEnding:
    """Read a state: ``CANCELLED by 1000`` and the cut-off ``OUT_OF_ME+`` are the states that they begin with.

    A limit that ran out and a cancelled job were killed; a state that is not an ending is UNKNOWN.
    """
    first = word.split(" ", 1)[0]
    if first.endswith("+"):
        first = next((known for known in _ENDINGS if known.startswith(first[:-1])), first)
    return _ENDINGS.get(first, TableEnding.UNKNOWN)


def slurm_endings(words: NDArray[np.str_]) -> NDArray[np.int8]:
    return mapped(words, slurm_ending, np.int8)
