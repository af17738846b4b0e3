"""Slurm's words for how a job ended, as the endings of a trace."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import TableEnding
from perdure.traces.texts import mapped

_FAILURES = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL", "SPECIAL_EXIT")
_ENDINGS = {
    "COMPLETED": TableEnding.PASSED,
    **dict.fromkeys(("CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED", "PREEMPTED"), TableEnding.KILLED),
    **dict.fromkeys(_FAILURES, TableEnding.FAILED),
}


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
