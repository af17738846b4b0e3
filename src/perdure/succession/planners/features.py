"""A view as a row of numbers for learned planners: the queue now and the latest waits of like jobs, in hours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perdure.succession.protocol import Forecast, View
from perdure.succession.queue_state import NAMES

Floats = NDArray[np.float64]
_RECENT = (0.5, 0.8, 0.95)
WIDTH = len(NAMES) + len(_RECENT) + 2
FORECAST_LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def state_row(view: View) -> Floats:
    """(WIDTH,) without the forecast: what can be seen without simulating. Zeros for what is not known."""
    state = np.array(view.queue[-1], np.float64) if view.queue else np.zeros(len(NAMES))
    waits_h = np.array(view.recent, np.float64) / 3600
    recent = (
        (waits_h[-1], waits_h.mean(), *np.quantile(waits_h, _RECENT)) if len(waits_h) else np.zeros(WIDTH - len(NAMES))
    )
    return np.concatenate([state, recent])


def state_rows(views: Sequence[View]) -> Floats:
    return np.array([state_row(each) for each in views]).reshape(len(views), WIDTH)


def forecast_row(forecast: Forecast) -> Floats:
    """(6,) its mean and quantiles, in hours."""
    waits_h = np.array(forecast.waits_s) / 3600
    return np.concatenate([[waits_h.mean()], np.quantile(waits_h, FORECAST_LEVELS)])
