"""When a waiting job starts, in words."""

from __future__ import annotations

from perdure.service.web.pages.labels import about, span
from perdure.waits.forecast import WaitForecast
from perdure.waits.rollout import HORIZON_S


def starts_at(forecast: WaitForecast, now: float) -> str:
    """The likeliest time."""
    if forecast.median_s >= HORIZON_S:
        return f"later than in {span(HORIZON_S)}"
    if forecast.is_at_once:
        return "at once"
    return about(forecast.asked_s + forecast.median_s, now)


def starts_between(forecast: WaitForecast, now: float, to: str = "to") -> str:
    """The interval that four starts of five lie in; `to` is between its ends."""
    low_s, high_s = forecast.interval_s
    if low_s >= HORIZON_S:
        return f"later than in {span(HORIZON_S)}"
    early = about(forecast.asked_s + low_s, now)
    if high_s >= HORIZON_S:
        return f"{early} {to} later than in {span(HORIZON_S)}"
    late = about(forecast.asked_s + high_s, now)
    return f"{early} {to} {late}" if late != early else early


def starts_in_words(forecast: WaitForecast, now: float) -> str:
    """Both, in a sentence without its end."""
    if forecast.is_at_once:
        return "at once"
    if forecast.median_s >= HORIZON_S:
        return f"{starts_at(forecast, now)}: that far nothing is simulated"
    between = starts_between(forecast, now, "and")
    if between == starts_at(forecast, now):
        return f"about {between}"
    return f"about {starts_at(forecast, now)}, four times of five between {between}"
