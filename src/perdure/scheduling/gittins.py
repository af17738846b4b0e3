"""The Gittins index of a job: how likely it ends soon, over how long it will be served until then."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class GittinsIndex:
    """G(a) = P(S - a <= D | S > a) / E[min(S - a, D) | S > a], from a sample of past services S.

    The chance that a job served for a ends within the next D, over what is spent on it meanwhile: an index for running
    times of which only the law is known. With one D for all jobs it is an approximation of Gittins' own, which takes
    the best D for each a.

    `samples` need not be sorted; samples, `quantum` (D) and attained service have one unit, GPU-seconds. Above the
    largest sample the index is 0. An index costs two binary searches; `sums` make the mean a difference.

    Source: J. Gu et al., "Tiresias", NSDI 2019; J. C. Gittins, 1979.

    >>> GittinsIndex.of([10, 10, 40, 100], 30).at(0)
    0.025
    """

    samples: NDArray[np.float64]
    quantum: float
    sums: NDArray[np.float64] = field(repr=False)  # of the first i samples, shape (n + 1,)

    @classmethod
    def of(cls, samples: NDArray[np.float64] | list[float], quantum: float) -> GittinsIndex:
        """The index of a sample, sorted and summed once."""
        ordered = np.sort(np.asarray(samples, np.float64))
        return cls(ordered, float(quantum), np.concatenate([[0.0], np.cumsum(ordered)]))

    def at(self, attained: float) -> float:
        """The index of a job that has been served for `attained`; per GPU-second. The greater, the sooner it should
        run.
        """
        n = len(self.samples)
        i, k = np.searchsorted(self.samples, (attained, attained + self.quantum), side="right")
        if i == n:
            return 0.0
        served = self.sums[k] - self.sums[i] - (k - i) * attained + (n - k) * self.quantum
        return float((k - i) / served)


@dataclass(frozen=True, slots=True)
class Steps:
    """An index that changes only where attained service passes a bound: `ranks[i]` once i bounds are reached."""

    bounds: NDArray[np.int64]  # ascending, shape (n,); whole GPU-ticks
    ranks: NDArray[np.float64]  # shape (n + 1,)

    def at(self, attained: int) -> float:
        """The rank at an attained service, in GPU-ticks."""
        return float(self.ranks[np.searchsorted(self.bounds, attained, side="right")])


def index_steps(samples: NDArray[np.float64], quantum: float, ticks_per_s: int) -> Steps:
    """The Gittins index as it was when the attained service last passed a sample.

    Between samples the exact index moves with every GPU-second, and the order of two jobs might change at any instant.
    Held between samples it changes only at known bounds. Bounds are rounded up to whole GPU-ticks.
    """
    index = GittinsIndex.of(samples, quantum)
    passed = np.unique(index.samples)
    ranks = np.array([index.at(0.0), *(index.at(value) for value in passed.tolist())])
    return Steps(np.ceil(passed * ticks_per_s).astype(np.int64), ranks)


def public_steps(samples: NDArray[np.float64], quantum: int, ticks_per_s: int) -> Steps:
    """The table that Tiresias' public simulator looks ranks up in.

    It takes the index just below each whole sample, rounds the probability to five digits and the mean service down
    to a whole number; its ranks are 1e6 times an index. A job that has attained a ranks as the first sample above
    a, and 0 from the last sample on. Use it to repeat that simulator's schedules, not to schedule.
    """
    values = np.sort(samples).astype(np.int64)
    n, last = len(values), int(values[-1])
    sums = np.concatenate([[0], np.cumsum(values)])
    ranks = []
    for value in np.unique(values).tolist():
        below = value - 1
        i = int(np.searchsorted(values, below, side="right"))
        k = n - 1 if below + quantum > last - 1 else int(np.searchsorted(values, below + quantum, side="right"))
        probability = round((k - i) / (n - i), 5)
        mean = (int(sums[k] - sums[i]) + quantum * (n - k)) // (n - i)
        ranks.append(round(probability * 1e6 / mean, 4))
    return Steps(np.unique(values) * ticks_per_s, np.array([*ranks, 0.0]))
