"""What it costs to preempt a job: for how long it holds its GPUs again before it goes on from where it was."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError

_LONGEST_S = 7 * 86_400.0
_FIX = "Write seconds, such as 30, or by the GPUs of a job: 1:7,8:30,60 is 7 s for one, 30 s up to 8, 60 s beyond"


@dataclass(frozen=True, slots=True)
class RestartCost:
    """Seconds by the GPUs of a job: `steps` are (up to so many GPUs, seconds), the smallest first, then `beyond_s`."""

    steps: tuple[tuple[int, float], ...] = ()
    beyond_s: float = 0.0

    def of(self, gpus: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of each job.

        >>> PUBLISHED.of(np.array([1, 2, 8, 9])).tolist()
        [7.0, 30.0, 30.0, 60.0]
        """
        ends = np.array([most for most, _ in self.steps], np.int64)
        seconds = np.array([*(each for _, each in self.steps), self.beyond_s], np.float64)
        cost: NDArray[np.float64] = seconds[np.searchsorted(ends, gpus)]
        return cost

    def __str__(self) -> str:
        return ",".join([*(f"{most}:{seconds:g}" for most, seconds in self.steps), f"{self.beyond_s:g}"])


FREE = RestartCost()
PUBLISHED = RestartCost(((1, 7.0), (8, 30.0)), 60.0)
"""The cold start of a job in the simulator of Helios (Q. Hu et al., "Characterization and prediction of deep learning
workloads in large-scale GPU datacenters", SC 2021; code: S-Lab HeliosArtifact). Pollux's takes 30 s for any job."""


def restart_cost(text: str) -> RestartCost:
    """The cost of "30" or "1:7,8:30,60". Raises `InputError`.

    >>> restart_cost("1:7,8:30,60") == PUBLISHED, str(PUBLISHED)
    (True, '1:7,8:30,60')
    """
    *steps, last = (part.strip().rpartition(":") for part in text.split(","))
    try:
        found = RestartCost(tuple((int(most), float(seconds)) for most, _, seconds in steps), float(last[2]))
    except ValueError:
        found = None
    if found is None or last[1] or not _is_possible(found):
        raise InputError("--preemption-cost", f"{text!r} is not a cost", _FIX)
    return found


def _is_possible(found: RestartCost) -> bool:
    ends = [0, *(most for most, _ in found.steps)]
    seconds = [*(each for _, each in found.steps), found.beyond_s]
    grows = all(low < high for low, high in pairwise(ends))
    return grows and all(0 <= each <= _LONGEST_S for each in seconds)
