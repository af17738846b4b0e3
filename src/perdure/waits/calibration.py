"""Promises held against what came: how often starts were as early as was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from perdure.waits.forecast import INTERVAL, LEVELS

ENOUGH = 20  # answers; a share of fewer says little
FLOOR_S = 60.0  # differences of shorter waits are the scheduler's cycles


class Promise(Struct, frozen=True):
    """What was said of a job's wait, and when it started."""

    job_id: str
    asked_s: float
    wait_s: tuple[float, ...]  # rising with `LEVELS`
    start_s: float | None = None  # None while it has not
    raw_s: tuple[float, ...] = ()  # the same before anything was corrected; nothing where that was not kept
    kind: str = ""  # of job, as `own_errors.kind_of` tells

    def is_late_at(self, now_s: float) -> bool:
        """Whether a start from now on is after the interval."""
        return now_s - self.asked_s > max(self.wait_s[LEVELS.index(INTERVAL[1])], FLOOR_S)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of answers whose job has started: how many, and how often they held."""

    answers: int = 0
    within: float = 0.0  # share of the starts within the interval
    kept: tuple[float, ...] = ()  # for each of `LEVELS`, the share of starts by then
    median_off: float = 0.0  # half of the medians were off by a larger factor
    overdue: int = 0  # answers whose job waits still, though the interval is over

    @property
    def is_known(self) -> bool:
        return self.answers >= ENOUGH


def calibration_of(promises: Sequence[Promise], overdue: int = 0) -> Calibration:
    """Of promises whose job has started. What was promised, and came, within a minute holds at every level as often
    as it was to."""
    told = [each for each in promises if each.start_s is not None]
    if not told:
        return Calibration(overdue=overdue)
    wait_s = np.array([(each.start_s or 0.0) - each.asked_s for each in told])
    said_s = np.array([each.wait_s for each in told])
    by_then = np.where((said_s <= FLOOR_S) & (wait_s <= FLOOR_S)[:, None], np.array(LEVELS), wait_s[:, None] <= said_s)
    low_s, middle_s, high_s = (said_s[:, LEVELS.index(level)] for level in (INTERVAL[0], 0.5, INTERVAL[1]))
    inside = (wait_s >= np.where(low_s <= FLOOR_S, 0.0, low_s) - 1) & (wait_s <= np.maximum(high_s, FLOOR_S))
    off = np.abs(np.log10(np.maximum(wait_s, FLOOR_S)) - np.log10(np.maximum(middle_s, FLOOR_S)))
    kept = tuple(by_then.mean(axis=0).tolist())
    return Calibration(len(told), float(inside.mean()), kept, float(10 ** np.median(off)), overdue)
