"""QBETS: bounds on quantiles from the order of the last waits, of any distribution; forgets at change points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.stats import binom

from perdure.waits.grouping import codes
from perdure.waits.median import quantiles_of
from perdure.waits.protocol import LEAST_WAIT_S, LEVELS, Learned
from perdure.waits.table import WaitTable

Class = tuple[int, int] | int | None  # partition and size, a partition, all jobs
ALL: Class = None


@dataclass(frozen=True, slots=True)
class Qbets:
    """Upper bounds of the upper quantiles and lower bounds of the lower ones, each right with `confidence`.

    Claim: the share of waits within the bounds is at least what is promised, as long as waits come from one
    distribution. Of n of them the k-th smallest lies above the q-quantile with the chance that fewer than k of n are
    below it, a binomial one: no distribution is assumed.

    Jobs are of one class where they are of one partition and of like size; a class with too few waits for a bound
    is answered for by its partition, then by all jobs. Waits that still go on count with what they have come to.
    Where `run` batches in a row (an account's jobs of one look) lie beyond a bound, what was before them is forgotten.

    Source: D. Nurmi, J. Brevik, R. Wolski, "QBETS: queue bounds estimation from time series", JSSPP 2007. There a run
    counts jobs, with a length that grows with their correlation; here it counts batches, which are less alike.
    """

    confidence: float = 0.95
    level: float = 0.9  # the bound by which change points are found, and its counterpart below
    run: int = 3
    most: int = 2_000  # waits that a class remembers
    name: str = "qbets"

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> Bounds:  # noqa: ARG002
        known = seen.evidence_at(now)
        known = known.take(np.lexsort((known.account, known.poll_s)))
        waits_s, size = np.maximum(known.waited_s, LEAST_WAIT_S), _size(known)
        batch = codes(known.poll_s, known.account)
        remembered: dict[Class, NDArray[np.float64]] = {}
        for kind, rows in _classes(known.partition, size):
            kept = self._since_last_change(waits_s[rows], batch[rows])
            if kind is ALL or upper_place(len(kept), self.level, self.confidence) is not None:
                remembered[kind] = np.sort(kept)
        return Bounds(self.confidence, remembered)

    def _since_last_change(self, waits_s: NDArray[np.float64], batch: NDArray[np.int64]) -> NDArray[np.float64]:
        """The waits, in the order of their looks, from the last change point on; at most `most`."""
        begin, run_from, above, below = 0, 0, 0, 0
        for first, end in _runs(batch):
            run_from = run_from if above or below else first  # a run is held against what was before it
            past = np.sort(waits_s[max(begin, run_from - self.most) : run_from])
            high = upper_place(len(past), self.level, self.confidence)
            if high is None:
                continue
            middle = float(np.median(waits_s[first:end]))
            above = above + 1 if middle > past[high] else 0
            below = below + 1 if middle < past[len(past) - 1 - high] else 0
            if max(above, below) >= self.run:
                begin, above, below = run_from, 0, 0
        return waits_s[max(begin, len(waits_s) - self.most) :]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The waits of each class since its last change point, rising."""

    confidence: float
    remembered: dict[Class, NDArray[np.float64]]
    remarks: tuple[str, ...] = ()

    def quantiles(self, asked: WaitTable, levels: Sequence[float] = LEVELS) -> NDArray[np.float64]:
        answers = np.empty((len(asked), len(levels)))
        for kind, rows in _classes(asked.partition, _size(asked)):  # from the widest class to the narrowest
            if kind in self.remembered:
                answers[rows] = self._bounds(self.remembered[kind], levels)
        return answers

    def _bounds(self, waits_s: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
        """(n_levels,) a bound for each level; the longest or shortest wait where there are too few for one."""
        n, found = len(waits_s), quantiles_of(waits_s, levels)
        for place, level in enumerate(levels if n else ()):
            high = upper_place(n, max(level, 1 - level), self.confidence)
            high = n - 1 if high is None else high
            if level != 0.5:
                found[place] = waits_s[high if level > 0.5 else n - 1 - high]
        return np.maximum.accumulate(found)


@lru_cache(maxsize=1 << 14)
def upper_place(n: int, level: float, confidence: float) -> int | None:
    """Which of n rising values, counted from 0, is an upper bound of the quantile; None where n is too small.

    >>> upper_place(58, 0.95, 0.95), upper_place(59, 0.95, 0.95)  # 0.95 ** 59 < 0.05
    (None, 58)
    """
    place = int(binom.ppf(confidence, n, level)) if n else 0
    return place if place < n else None


def _size(table: WaitTable) -> NDArray[np.int64]:
    """Which size each job is of: its CPU hours asked for, by factors of 16."""
    hours = np.nan_to_num(table.feature("cpu_h_asked").astype(np.float64))
    sizes: NDArray[np.int64] = np.floor(np.log2(1 + np.maximum(hours, 0)) / 4).astype(np.int64)
    return sizes


def _classes(partition: NDArray[np.int64], size: NDArray[np.int64]) -> Iterator[tuple[Class, NDArray[np.intp]]]:
    """Every class with its rows, the widest first."""
    yield ALL, np.arange(len(partition))
    for one in np.unique(partition).tolist():
        yield one, np.flatnonzero(partition == one)
    for one, its in np.unique(np.column_stack([partition, size]), axis=0).tolist():
        yield (one, its), np.flatnonzero((partition == one) & (size == its))


def _runs(batch: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where rows of one batch that stand together begin and end."""
    if not len(batch):
        return
    edges = np.flatnonzero(np.diff(batch)) + 1
    yield from zip([0, *edges.tolist()], [*edges.tolist(), len(batch)], strict=True)
