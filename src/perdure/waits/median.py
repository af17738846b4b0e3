"""The median of what jobs of the same partition waited recently: the least that a predictor must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.waits.conformal import ScoreQuantiles, score_quantiles
from perdure.waits.protocol import LEAST_WAIT_S, LEVELS, Learned
from perdure.waits.table import WaitTable

NOTHING_SEEN_S = (60.0, 3_600.0, 216_000.0)  # said before any wait is known: an hour, and a factor of 60 either way
EVERYWHERE = None


@dataclass(frozen=True, slots=True)
class Median:
    """The quantiles of the last `most` looks at the partition; at all partitions where it had fewer than `least`.

    Waits that go on count until what they have come to (a product limit).
    """

    most: int = 200
    least: int = 10
    name: str = "median"

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> LastWaits:  # noqa: ARG002
        known = seen.evidence_at(now)
        known = known.take(np.argsort(known.poll_s, kind="stable"))
        by_partition: dict[int | None, ScoreQuantiles] = {EVERYWHERE: self._last(known)}
        for partition in np.unique(known.partition).tolist():
            its = known.take(known.partition == partition)
            if its.started.sum() >= self.least:
                by_partition[partition] = self._last(its)
        return LastWaits(by_partition)

    def _last(self, known: WaitTable) -> ScoreQuantiles:
        waits = np.log10(np.maximum(known.waited_s, LEAST_WAIT_S))[-self.most :]
        return score_quantiles(waits, ~known.started[-self.most :], np.ones(len(waits)))


@dataclass(frozen=True, slots=True)
class LastWaits:
    """The last waits of each partition, and of all."""

    by_partition: dict[int | None, ScoreQuantiles]  # of log10 of the wait
    remarks: tuple[str, ...] = ()

    def quantiles(self, asked: WaitTable, levels: Sequence[float] = LEVELS) -> NDArray[np.float64]:
        answers = np.empty((len(asked), len(levels)))
        everywhere = self.by_partition[EVERYWHERE]
        for partition in np.unique(asked.partition).tolist():
            known = self.by_partition.get(partition, everywhere)
            found = 10 ** known.at(levels) if len(known.scores) else quantiles_of(np.zeros(0), levels)
            answers[asked.partition == partition] = found
        return answers


def quantiles_of(waits_s: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
    """(n_levels,) quantiles of some waits, by their logarithms; where there is none, of `NOTHING_SEEN_S`."""
    known = waits_s if len(waits_s) else np.array(NOTHING_SEEN_S)
    answer: NDArray[np.float64] = 10 ** np.quantile(np.log10(known), levels)
    return answer
