"""What a predictor of waits is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.waits.table import WaitTable

LEAST_WAIT_S = 1.0  # waits are compared by their logarithm: none is shorter
INTERVAL = (0.1, 0.9)  # levels of the interval that is promised to hold four times of five
LEVELS = (INTERVAL[0], 0.5, INTERVAL[1])


class Learned(Protocol):
    """What a predictor knows at one instant. A value: asking changes nothing."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What who reads the answers should know: what is missing, that intervals were widened; one sentence each."""

    def quantiles(self, asked: WaitTable, levels: Sequence[float] = LEVELS) -> NDArray[np.float64]:
        """(n, n_levels) seconds that jobs will still wait after their look; `levels` rise within (0, 1).

        Never negative, and no lower level has a later time. The starts in `asked` are not read.
        """


class Predictor(Protocol):
    """A way to predict waits; a frozen value of its settings."""

    @property
    def name(self) -> str:
        """As in the registry."""

    def learn(self, seen: WaitTable, now: float, rng: Generator, before: Learned | None = None) -> Learned:
        """Learn from the looks in `seen`, as far as they were known at `now`. Works from no look on.

        `before` is what this predictor learned at an earlier instant: what it said of looks since then can now be
        held against what came. The same arguments give the same answers.
        """
