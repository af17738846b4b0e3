"""Optimal stopping: submit once that is expected to cost no more than to go on waiting and submit later.

Backward induction over the steps that a link has left, by regression on past instants (Longstaff, Schwartz, "Valuing
American options by simulation", Rev. Financial Studies 14, 2001). As the wait is known for every past instant, whenever
a successor was submitted, no exploration is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.succession.planners.terms import at_the_end, in_words, later, level_of, until_the_end
from perdure.succession.protocol import Decision, Forecast, TrainingCase, View

Floats = NDArray[np.float64]
PRICES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)  # of overlap, for which it learns
AROUND_H = (-6.0, -2.0, 0.0, 2.0, 6.0)  # offsets of the wait at which the forecast's cost is a variable
RIDGE = 3.0


@dataclass(frozen=True, slots=True)
class StoppingWeights:
    """Weights by price, steps left and variable: of what submitting now costs more than waiting, in hours."""

    step_s: float
    weight: Floats  # (n_prices, n_steps + 1, n_variables)


@dataclass(frozen=True, slots=True)
class Stopping:
    """It learns from forecasts and waits of the past, for each of a few prices of overlap."""

    learned: StoppingWeights | None = None
    name: str = "stopping"

    def train(self, lessons: Sequence[TrainingCase], rng: np.random.Generator) -> Stopping:  # noqa: ARG002
        """Lessons are one instant of an even grid each, and the link of each begins then."""
        known = [each for each in lessons if each.view.forecast is not None]
        if len(known) < 2:
            return self
        step_s = float(np.median(np.diff([each.view.now for each in known])))
        steps = round((known[0].view.link_ends - known[0].view.link_started) / step_s)
        wait_h = np.array([each.wait_s for each in known]) / 3600
        forecasts = np.array([_resampled(each.view.forecast) for each in known if each.view.forecast]) / 3600
        weight = [_induced(forecasts, wait_h, step_s / 3600, steps, price) for price in PRICES]
        return replace(self, learned=StoppingWeights(step_s, np.array(weight)))

    def decide(self, view: View) -> Decision:
        if self.learned is None or view.forecast is None:
            return until_the_end(view, "the planner has not been trained, or nothing is forecast")
        if view.left <= 0:
            return at_the_end(view)
        level = level_of(view)
        price = int(np.argmin(np.abs(np.log(PRICES) - np.log(max(1 / max(level, 1e-9) - 1, 1e-9)))))
        steps = min(max(1, round(view.left / self.learned.step_s)), self.learned.weight.shape[1] - 1)
        row = _variables(_resampled(view.forecast)[None] / 3600, view.left / 3600, PRICES[price])[0]
        more_h = float(row @ self.learned.weight[price, steps])
        if more_h <= 0:
            return Decision(True, view.now, f"waiting any longer is expected to cost {in_words(-3600 * more_h)} more")
        return later(view, f"submitting now is expected to cost {in_words(3600 * more_h)} more than submitting later")

    def arrays(self) -> dict[str, Floats]:
        return (
            {}
            if self.learned is None
            else {
                "step_s": np.array([self.learned.step_s]),
                "weight": self.learned.weight,
            }
        )

    def with_arrays(self, arrays: Mapping[str, Floats]) -> Stopping:
        weight, step_s = arrays["weight"], float(arrays["step_s"][0])
        if weight.ndim != 3 or (len(weight), weight.shape[2]) != (len(PRICES), len(AROUND_H) + 4):
            raise ValueError("weights are not by price, step and variable")
        if weight.shape[1] < 2 or step_s <= 0:
            raise ValueError("there is no step")
        return replace(self, learned=StoppingWeights(step_s, weight))


def _induced(forecasts_h: Floats, wait_h: Floats, step_h: float, steps: int, price: float) -> Floats:
    """(steps + 1, n_variables) weights, from the end of a link backwards."""
    weight = [np.zeros(len(AROUND_H) + 4)]
    follow = wait_h  # cost of going on as learned, by the instant at which this many steps are left
    for left in range(1, steps + 1):
        now = _cost(wait_h[:-1] - left * step_h, price) if len(wait_h) > 1 else wait_h[:0]
        rows = _variables(forecasts_h, left * step_h, price)
        n = min(len(now), len(follow) - 1)
        weight.append(_regressed(rows[:n], now[:n] - follow[1 : n + 1]))
        submits = rows[:n] @ weight[-1] <= 0
        follow = np.where(submits, now[:n], follow[1 : n + 1])
    return np.array(weight)


def _variables(forecasts_h: Floats, left_h: float, price: float) -> Floats:
    """(n, n_variables): what the forecast itself says of the cost, nearby, and of the wait."""
    late = forecasts_h - left_h
    costs = [_cost(late + shift, price).mean(axis=1) for shift in AROUND_H]
    wait = np.log1p(forecasts_h)
    return np.column_stack([np.ones(len(late)), *costs, (late > 0).mean(axis=1), wait.mean(axis=1), wait.max(axis=1)])


def _regressed(rows: Floats, target: Floats) -> Floats:
    """Ridge regression on variables of one scale; the first, a constant, is not held small."""
    if not len(rows):
        return np.zeros(rows.shape[1])
    scale = np.maximum(rows.std(axis=0), 1e-6)
    scale[0] = 1.0
    scaled = rows / scale
    hold = RIDGE * np.eye(rows.shape[1])
    hold[0, 0] = 1e-9
    return np.asarray(np.linalg.solve(scaled.T @ scaled + hold, scaled.T @ target) / scale, np.float64)


def _cost(late_h: Floats, price: float) -> Floats:
    return np.where(late_h >= 0, late_h, -price * late_h)


def _resampled(forecast: Forecast, n: int = 8) -> Floats:
    return np.array([forecast.at((place + 0.5) / n) for place in range(n)])
