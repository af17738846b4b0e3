"""The refit: now and then, in the background, answers about the past are held against what came.

What was learnt corrects forecasts from then on. It is kept in a file, so that it outlasts the service; one that is
missing, old or of another version is made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from perdure.errors import StateError
from perdure.service.waits.order import ForecastOrder
from perdure.service.waits.process import fit_of
from perdure.waits.forecast import LEVELS
from perdure.waits.hindcast import FIT_DAYS, Fit
from perdure.waits.past import DAY_S

EVERY_S = 6 * 3600.0
AGAIN_S = 3600.0  # after one that failed, or found too little to learn from
FIRST_S = 30.0  # from one try to the next until there is a history to fit to


class Refit:
    """Makes fits in its own thread's turns; the watch reads `latest`."""

    def __init__(self, file: Path, clock: Callable[[], float], make: Callable[[ForecastOrder], Fit] = fit_of) -> None:
        """`file` is where the last fit is kept."""
        self._file, self._clock, self._make = file, clock, make
        self._order: ForecastOrder | None = None
        self._due_s = 0.0
        self._made = self._kept()
        if self._made is not None:
            self._due_s = self._made.made_s + EVERY_S

    @property
    def latest(self) -> Fit | None:
        """What was learnt last, while it is young enough and there was enough to learn from."""
        made = self._made
        return made if made is not None and made.is_known and self._is_young(made) else None

    def note(self, order: ForecastOrder) -> None:
        """What the next fit is made from."""
        self._order = order

    def turn(self) -> None:
        """Fit, where that is due. Raises `PerdureError` where it fails: what was learnt before stays."""
        order, now = self._order, self._clock()
        if order is None or not order.past or now < self._due_s:
            return
        self._due_s = now + AGAIN_S
        made = self._make(order)
        if made.is_known:
            self._made, self._due_s = made, now + EVERY_S
            self._keep(made)

    def pause_s(self) -> float:
        """Until the next turn."""
        return FIRST_S if self._order is None else max(FIRST_S, self._due_s - self._clock())

    def _is_young(self, made: Fit) -> bool:
        return abs(self._clock() - made.made_s) <= FIT_DAYS * DAY_S

    def _kept(self) -> Fit | None:
        try:
            made = msgspec.json.decode(self._file.read_bytes(), type=Fit)
        except (OSError, msgspec.MsgspecError):
            return None
        return made if len(made.shifts) == len(LEVELS) and self._is_young(made) else None

    def _keep(self, made: Fit) -> None:
        """Raises `StateError` where the disk does not take it."""
        try:
            write_whole(self._file, msgspec.json.encode(made))
        except OSError as err:
            raise StateError(str(self._file), f"cannot be written ({err.strerror})", "Make room for it") from err


def write_whole(file: Path, data: bytes) -> None:
    """Write a file so that whoever reads it finds all of it, or what was there before. Raises `OSError`."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_bytes(data)
    os.replace(fresh, file)
