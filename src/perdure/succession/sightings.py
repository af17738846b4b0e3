"""What a planner could have seen at each instant of a replayed trace, and nothing that came later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.succession.protocol import Forecast, ForecastOutcome, View
from perdure.succession.queue_state import queue_state
from perdure.succession.replayed import LinkShape, ReplayedQueue, waits_of_like_jobs
from perdure.succession.wait_table import SuccessorWaits
from perdure.succession.what_if import WhatIfWaits
from perdure.waits.past import DAY_S

Floats = NDArray[np.float64]
RECENT = 30  # waits of like jobs
MEMORY_S = 21 * DAY_S  # of outcomes
OUTCOME_EACH_S = 3 * 3600.0  # one forecast of this many is followed up
HISTORY = 24  # looks at the queue


@dataclass(frozen=True, slots=True)
class Terms:
    """What a chain's owner wants: a price of overlap, or an accepted probability of an interruption."""

    overlap_cost: float = 0.25
    max_interruption: float | None = None


@dataclass(frozen=True, slots=True)
class Sightings:
    """One entry an instant, by rising time."""

    instants_s: Floats
    forecasts: Sequence[Forecast | None]
    recent: Sequence[tuple[float, ...]]
    outcomes: Sequence[tuple[ForecastOutcome, ...]]
    states: Sequence[tuple[float, ...]]

    def view(self, row: int, link_started: float, link_ends: float, terms: Terms) -> View:
        """What is seen at an instant by the planner of a link."""
        return View(
            float(self.instants_s[row]), link_started, link_ends, terms.overlap_cost, terms.max_interruption,
            self.forecasts[row], self.recent[row], self.outcomes[row],
            tuple(self.states[max(0, row + 1 - HISTORY) : row + 1]),
        )  # fmt: skip


def sightings(
    queue: ReplayedQueue, shape: LinkShape, column: int, truth: SuccessorWaits, what_if: WhatIfWaits
) -> Sightings:
    """Of one shape, which has a column in both tables."""
    instants, waits = truth.instants_s, truth.wait_s[:, column]
    forecasts = [Forecast.of_samples(each) for each in what_if.samples_s[:, column]]
    return Sightings(
        instants,
        forecasts,
        [tuple(waits_of_like_jobs(queue, shape, now, RECENT).tolist()) for now in instants.tolist()],
        _outcomes(instants, waits, forecasts),
        [tuple(queue_state(queue.picture(now), now, queue.gpus).tolist()) for now in instants.tolist()],
    )


def _outcomes(instants: Floats, waits: Floats, forecasts: Sequence[Forecast]) -> list[tuple[ForecastOutcome, ...]]:
    """What was known at each instant of forecasts made before it."""
    step = max(1, round(OUTCOME_EACH_S / (instants[1] - instants[0]))) if len(instants) > 1 else 1
    over = [ForecastOutcome(said, wait, True) for said, wait in zip(forecasts, waits.tolist(), strict=True)]
    found = []
    for now in instants.tolist():
        first, last = np.searchsorted(instants, (now - MEMORY_S, now))
        rows = range(-(-int(first) // step) * step, int(last), step)
        found.append(
            tuple(
                over[row]
                if instants[row] + waits[row] <= now
                else ForecastOutcome(forecasts[row], now - float(instants[row]), False)
                for row in rows
            )
        )
    return found
