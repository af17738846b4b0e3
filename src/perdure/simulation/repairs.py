"""How long nodes stay bad.

Source: fault trace of an LLM cluster of 400 GPU servers, published with InfiniteHBD (SIGCOMM 2025): the time from
start to end of the 399 faults of its first 250 days that are over by then.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

_DAY_S = 86_400.0
REPAIR_DAYS = {0.05: 0.008, 0.25: 0.122, 0.5: 1.06, 0.75: 3.84, 0.9: 15.1, 0.95: 30.2, 0.99: 58.3, 1.0: 88.5}
"""Quantiles."""


def draw_repairs_s(count: int, rng: Generator) -> NDArray[np.float64]:
    """Whole seconds until so many faults are over: straight in the logarithm between the quantiles, none below them."""
    places, days = np.array([*REPAIR_DAYS.items()]).T
    drawn: NDArray[np.float64] = np.rint(np.exp(np.interp(rng.random(count), places, np.log(days))) * _DAY_S)
    return drawn
