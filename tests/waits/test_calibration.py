"""Promises held against what came."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.waits.calibration import ENOUGH, Calibration, Promise, calibration_of
from perdure.waits.forecast import LEVELS

HOUR_S = 3600.0


def promise(start_s: float | None, scale_s: float = HOUR_S, asked_s: float = 0.0) -> Promise:
    return Promise("1", asked_s, tuple(scale_s * level for level in LEVELS), start_s)


def test_starts_spread_as_promised_are_kept_at_every_level() -> None:
    found = calibration_of([promise(wait_s) for wait_s in np.linspace(1, HOUR_S, 2000)])
    assert found.kept == pytest.approx(LEVELS, abs=0.01)
    assert found.within == pytest.approx(0.8, abs=0.01)


def test_starts_that_come_later_than_promised_are_kept_less_often() -> None:
    found = calibration_of([promise(2 * wait_s) for wait_s in np.linspace(1, HOUR_S, 2000)])
    assert all(kept < level for kept, level in zip(found.kept, LEVELS, strict=True))
    assert found.within == pytest.approx(0.4, abs=0.01)


def test_within_a_minute_promised_and_come_is_as_promised() -> None:
    found = calibration_of([promise(start_s, 0.5) for start_s in (1.0, 30.0, 59.0)])
    assert found.within == 1.0
    assert found.kept == pytest.approx(LEVELS)
    assert found.median_off == 1.0


def test_a_start_after_the_minute_that_was_promised_is_not_kept() -> None:
    found = calibration_of([promise(61.0, 0.5)])
    assert found.within == 0.0
    assert found.kept == (0.0,) * len(LEVELS)


def test_what_has_not_started_counts_as_no_answer() -> None:
    assert calibration_of([promise(None)], overdue=1) == Calibration(overdue=1)
    assert not calibration_of([promise(100.0)] * (ENOUGH - 1)).is_known
    assert calibration_of([promise(100.0)] * ENOUGH).is_known


def test_a_job_is_late_once_its_interval_is_over() -> None:
    assert not promise(None, asked_s=100.0).is_late_at(100.0 + 0.9 * HOUR_S)
    assert promise(None, asked_s=100.0).is_late_at(101.0 + 0.9 * HOUR_S)
    assert not promise(None, 1.0).is_late_at(60.0)


def test_half_of_the_medians_are_off_by_less_than_the_factor() -> None:
    assert calibration_of([promise(HOUR_S)] * 3).median_off == pytest.approx(2.0)
