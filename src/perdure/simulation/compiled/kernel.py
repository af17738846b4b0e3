"""How the functions of the compiled loop are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Records = NDArray[np.void]
"""An array of records: what is kept about a job lies together in memory, and arrays to hand around are few."""


def _decorator() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    try:
        # They allocate nothing, so that counting references to the arrays that they hand to each other, which
        # costs fifty times the work itself, can be left out. numba has that switch for its own use only.
        return njit(cache=True, _nrt=False)  # type: ignore[call-overload,no-any-return]
    except (KeyError, TypeError):
        return njit(cache=True)


kernel = _decorator()
"""Compiles a function on its first call, or loads what an earlier run compiled."""


def records(n: int, **fields: tuple[type[np.generic], int]) -> Records:
    """`n` records whose fields have these types, and this value at first."""
    made = np.zeros(n, np.dtype([(name, kind) for name, (kind, _) in fields.items()]))
    for name, (_, value) in fields.items():
        if value:
            made[name] = value
    return made


LONG, LONG_NONE = (np.int64, 0), (np.int64, -1)
SHORT, SHORT_NONE = (np.int32, 0), (np.int32, -1)
FLAG = (np.bool_, 0)
