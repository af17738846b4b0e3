"""Clocks of traces: wall clocks of a time zone as seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError

_HOUR = 3600.0
_CALENDAR_S = (-2.0e9, 7.0e9)  # the years 1906 to 2191: beyond, the offset of the nearer end is taken


def from_wall_clock(wall_s: NDArray[np.float64], zone: str, later: bool = False) -> NDArray[np.float64]:
    """Seconds since the epoch of times that were read as if their clock showed UTC. NaN stays NaN.

    Of an hour that a clock shows twice the first is taken, or the second with `later`. Raises `InputError` where the
    machine knows no zones.
    """
    try:
        place = ZoneInfo(zone)
    except ZoneInfoNotFoundError as err:
        raise InputError(f"time zone {zone}", "this machine does not know it", "Install the package tzdata") from err
    with np.errstate(invalid="ignore"):
        # No clock that is read here changes within an hour, so one look-up an hour is enough.
        known = np.clip(np.where(np.isfinite(wall_s), wall_s, 0), *_CALENDAR_S)
        hours, which = np.unique(np.floor(known / _HOUR), return_inverse=True)
    offsets: NDArray[np.float64] = np.array([_offset_s(hour * _HOUR, place, later) for hour in hours])
    moved: NDArray[np.float64] = wall_s - offsets[which]
    return moved


def spans(
    start_s: NDArray[np.float64], end_s: NDArray[np.float64], zone: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Starts and ends as `from_wall_clock` tells them; but of an hour shown twice the second, for what had begun in it.

    Raises what `from_wall_clock` does.
    """
    began_s, ended_s = from_wall_clock(start_s, zone), from_wall_clock(end_s, zone)
    with np.errstate(invalid="ignore"):
        backwards = ended_s < began_s
    return began_s, np.where(backwards, from_wall_clock(end_s, zone, later=True), ended_s)


def _offset_s(wall_s: float, place: ZoneInfo, later: bool) -> float:
    shown = datetime.fromtimestamp(wall_s, UTC).replace(tzinfo=place, fold=int(later))
    offset = shown.utcoffset()
    return 0.0 if offset is None else offset.total_seconds()
