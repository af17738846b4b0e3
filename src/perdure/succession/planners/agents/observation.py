"""What an agent observes of a view: looks at the queue, newest last, and next to each the link and the forecast."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.succession.planners.features import WIDTH, forecast_row, state_row
from perdure.succession.planners.terms import level_of
from perdure.succession.protocol import Forecast, View
from perdure.succession.queue_state import NAMES

WAIT, SUBMIT = 0, 1  # actions
DAY_H = 24.0
_NOTHING = Forecast((0.0,))
_OF_FORECAST = 6
_OF_LINK = 4


def width_of() -> int:
    """Numbers of one look."""
    return WIDTH + _OF_FORECAST + _OF_LINK


def observe(view: View, looks: int = 1) -> NDArray[np.float32]:
    """(looks, width_of()); looks before the first that is known repeat it. Numbers are of about the size of 1."""
    forecast = forecast_row(view.forecast or _NOTHING)
    left_h = max(view.left, 0.0) / 3600
    chance = np.mean(np.array((view.forecast or _NOTHING).waits_s) > view.left)
    link = [left_h / DAY_H, chance, level_of(view), (forecast[0] - left_h) / DAY_H]
    now = np.concatenate([np.tanh(state_row(view) / 10), np.tanh(forecast / DAY_H), link])
    rows = np.tile(now, (looks, 1))
    states = view.queue[-looks:]
    for back, state in enumerate(reversed(states)):
        rows[looks - 1 - back, : len(NAMES)] = np.tanh(np.array(state) / 10)
    if states:
        rows[: looks - len(states), : len(NAMES)] = np.tanh(np.array(states[0]) / 10)
    return rows.astype(np.float32)
