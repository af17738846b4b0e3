"""What the repeated published studies share: figures over seeds, and a seed's stream of draws.

They draw traces that look like Philly's, since none is public with its failures and start times. What the papers
print is next to our figures, and is marked as published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, Philox

from perdure.simulation.metrics import interval

Progress = Callable[[int, int], None]
"""``progress(done, runs)``, told as simulations are done."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean over the seeds that have a value, and its bootstrap interval at 95 %; 0 where no seed has one."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        there = [value for value in values if not np.isnan(value)] or [0.0]
        return cls(float(np.mean(there)), *interval(there, Generator(Philox(key=0))))


def estimates(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The estimate of each figure, from one row of figures a seed."""
    return {name: Estimate.of([row[name] for row in rows]) for name in rows[0]}


def stream(seed: int) -> Generator:
    """What the jobs of a seed are drawn from."""
    return Generator(Philox(key=[seed, 0]))
