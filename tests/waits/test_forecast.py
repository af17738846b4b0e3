"""A distribution of a wait, and what is read from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.waits.forecast import LEVELS, WaitForecast, blended, of_quantiles, of_samples

waits = st.lists(st.floats(0, 1e7), min_size=1, max_size=50).map(np.array)


def test_the_median_and_the_interval_are_those_of_the_samples() -> None:
    forecast = of_samples(0.0, np.arange(1.0, 1002.0))
    assert forecast.median_s == pytest.approx(501)
    assert forecast.interval_s == pytest.approx((101, 901))


def test_the_chance_of_a_start_within_a_quantile_is_its_level() -> None:
    forecast = of_samples(0.0, np.arange(1.0, 1002.0))
    assert [forecast.chance_within(forecast.at(level)) for level in LEVELS] == pytest.approx(LEVELS)


def test_nobody_is_promised_more_than_the_outermost_quantiles_tell() -> None:
    forecast = of_samples(0.0, np.full(9, 600.0))
    assert forecast.chance_within(1e9) == LEVELS[-1]
    assert forecast.chance_within(1.0) == LEVELS[0]
    assert forecast.chance_within(0.0) == 0


@given(samples=waits, longer=st.floats(0, 1e7), shorter=st.floats(0, 1e7))
def test_more_time_never_lowers_the_chance(samples: np.ndarray, longer: float, shorter: float) -> None:
    forecast = of_samples(0.0, samples)
    low, high = sorted((shorter, longer))
    assert forecast.chance_within(low) <= forecast.chance_within(high)


@given(one=waits, other=waits, weight=st.floats(0.01, 0.99))
def test_a_blend_lies_between_its_parts(one: np.ndarray, other: np.ndarray, weight: float) -> None:
    parts = of_samples(0.0, one), of_samples(0.0, other)
    mixed = blended(parts, (weight, 1 - weight))
    for level in LEVELS:
        low, high = sorted(part.at(level) for part in parts)
        assert low * (1 - 1e-9) <= mixed.at(level) <= high * (1 + 1e-9)


def test_quantiles_that_cross_are_put_in_order() -> None:
    crossed = np.array([5.0, 3.0, *range(4, 13)])
    forecast = of_quantiles(0.0, crossed)
    assert list(forecast.wait_s) == sorted(forecast.wait_s)


def test_a_forecast_has_all_its_quantiles() -> None:
    with pytest.raises(ValueError, match="11 quantiles"):
        WaitForecast(0.0, (1.0,))


def test_a_job_that_starts_now_starts_at_once() -> None:
    assert of_samples(0.0, np.zeros(9)).is_at_once
    assert not of_samples(0.0, np.full(9, 30.0)).is_at_once
    assert not of_samples(0.0, np.repeat([0.0, 600.0], 9)[1:]).is_at_once
