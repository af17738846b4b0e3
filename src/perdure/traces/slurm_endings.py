"""How a job ended, from the word that Slurm's accounting has for its state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.model.table import TableEnding
from perdure.slurm_words.states import FAILURES, whole_word
from perdure.traces.texts import mapped

_ENDINGS = {
    "COMPLETED": TableEnding.PASSED,
    **dict.fromkeys(
        ("CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED", "PREEMPTED", "REQUEUED", "RESIZING"), TableEnding.KILLED
    ),
    **dict.fromkeys(FAILURES, TableEnding.FAILED),
}


def slurm_ending(word: str) -> TableEnding:
    """Read a state: ``CANCELLED by 1000`` and the cut-off ``OUT_OF_ME+`` are the states that they begin with.

    A limit that ran out and a cancelled job were killed; a state that is not an ending is UNKNOWN.
    """
    return _ENDINGS.get(whole_word(word, _ENDINGS), TableEnding.UNKNOWN)


def slurm_endings(words: NDArray[np.str_]) -> NDArray[np.int8]:
    return mapped(words, slurm_ending, np.int8)
