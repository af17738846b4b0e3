"""Budgets of what the resource manager is asked."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.service.core.call_budget import MINUTE_S, CallMeter, TokenBucket


def uses(bucket: TokenBucket, wishes: list[Any]) -> list[Any]:
    """The instants at which somebody who wishes to look at `wishes`, and waits as told, does so."""
    now, done = 0.0, []
    for wish in sorted(wishes):
        now = max(now, wish)
        now += bucket.wait_s(now)
        bucket = bucket.take(now)
        done.append(now)
    return done


@given(
    most=st.integers(1, 60),
    burst=st.integers(1, 5),
    wishes=st.lists(st.floats(0, 600, allow_nan=False), max_size=200),
)
def test_no_storm_exceeds_the_budget(most: int, burst: int, wishes: list[Any]) -> None:
    done = uses(TokenBucket.per_minute(most, burst), wishes)
    for at in done:
        assert sum(at <= other < at + MINUTE_S - 1e-6 for other in done) <= most


@given(most=st.integers(1, 60), now=st.floats(0, 1e9))
def test_the_first_need_not_wait(most: int, now: float) -> None:
    assert TokenBucket.per_minute(most).wait_s(now) == 0


@given(most=st.integers(1, 60), burst=st.integers(1, 5))
def test_who_always_wishes_gets_all_but_what_may_come_at_once(most: int, burst: int) -> None:
    done = uses(TokenBucket.per_minute(most, burst), [0.0] * 200)
    at_once = min(burst, most)
    assert done[at_once - 1] == 0.0
    assert sum(at <= 2 * MINUTE_S + 1e-6 for at in done) == 2 * (most - at_once + 1) + at_once


def test_what_is_not_used_is_not_saved_up() -> None:
    bucket = TokenBucket.per_minute(10).take(0.0)
    assert len([at for at in uses(bucket, [3600.0] * 10) if at == 3600.0]) == 2


def test_a_clock_that_was_set_back_gives_nothing() -> None:
    bucket = TokenBucket.per_minute(10, 1).take(1000.0)
    assert bucket.wait_s(0.0) > 0
    assert bucket.take(0.0).wait_s(1000.0) > 0  # nor does the way back


def test_a_clock_that_was_set_back_takes_nothing() -> None:
    assert TokenBucket.per_minute(10, 2).take(1000.0).wait_s(0.0) == 0


def test_a_meter_waits_as_its_bucket_says_and_without_one_never() -> None:
    kept, free = CallMeter.per_minute(10, 1), CallMeter.per_minute(None)
    for meter in (kept, free):
        assert meter.wait_s(0.0) == 0
        meter.take(0.0)
    assert (kept.wait_s(0.0), free.wait_s(0.0)) == (MINUTE_S / 10, 0.0)
