"""The reservations of one pass, against one number a tick."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.expected_ends import Agenda, empty_agenda
from perdure.simulation.compiled.free_gpus import Forecast, empty_forecast
from tests.simulation.compiled.in_python import in_python

ends, forecasts = in_python("expected_ends"), in_python("free_gpus")
LAST = 200  # all ends and reservations are over by then
ENDS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), max_size=6)
JOBS = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 15)), min_size=1, max_size=6)


def made(found: list[tuple[int, int]], now: int, free: int) -> tuple[Forecast, Agenda]:
    agenda, forecast = empty_agenda(max(1, len(found))), empty_forecast(40)
    for tick, gpus in found:
        ends.expect(agenda, tick, gpus)
    forecasts.forecast_from(forecast, now, free)
    return forecast, agenda


def check(forecast: Forecast, agenda: Agenda, wanted: np.ndarray) -> None:
    """As far as it has been worked out, the forecast says what is free at each tick."""
    many, known = int(forecast.tally[0].many), int(forecast.tally[0].ends)
    ticks, free = forecast.stretch["tick"][:many], forecast.stretch["free"][:many]
    assert (np.diff(ticks) > 0).all()
    until = LAST if known == agenda.many[0] else max(int(ticks[0]) + 1, int(agenda.tick[known]))
    at = np.arange(int(ticks[0]), until)
    assert np.array_equal(free[np.searchsorted(ticks, at, side="right") - 1], wanted[at])


@settings(max_examples=30)
@given(ENDS, st.integers(0, 10), st.integers(0, 4), JOBS)
def test_each_reservation_is_the_earliest_before_the_horizon(
    found: list[tuple[int, int]], now: int, idle: int, jobs: list[tuple[int, int]]
) -> None:
    free = np.full(LAST, idle)
    for tick, gpus in found:
        free[max(now + 1, tick) :] += gpus
    jobs = [(gpus, length) for gpus, length in jobs if gpus <= free[-1]]
    needed, horizon = min((gpus for gpus, _ in jobs), default=1), int(NEVER)
    forecast, agenda = made(found, now, idle)
    for gpus, length in jobs:
        fits = (tick for tick in range(now, LAST - length) if (free[tick : tick + length] >= gpus).all())
        wanted = next(fits)
        tick, later = forecasts.place_in(forecast, agenda, gpus, length, needed, horizon)
        if wanted >= horizon:
            assert (tick, later) == (NEVER, horizon)
            continue
        assert tick == wanted
        free[tick : tick + length] -= gpus
        short = [at for at in range(tick, tick + length) if free[at] < needed]
        assert later == min([horizon, *short])
        horizon = int(later)
        check(forecast, agenda, free)
        widest = max((int(free[at]) for at in range(now, min(horizon, LAST))), default=0)
        assert forecasts.widest_before(forecast, horizon) <= widest


def test_a_forecast_is_worked_out_as_it_is_asked_for() -> None:
    forecast, agenda = made([(10, 2), (10, 1), (20, 4)], 0, 1)
    assert forecasts.place_in(forecast, agenda, 1, 5, 1, NEVER) == (0, 0)
    assert forecast.tally[0].ends == 2  # both of tick 10, at which the walk sees that the gap was long enough
    assert forecasts.place_in(forecast, agenda, 4, 5, 1, NEVER) == (10, 10)
    assert forecasts.place_in(forecast, agenda, 8, 5, 1, NEVER) == (20, 20)
    assert not forecasts.go_on(forecast, agenda)
    assert forecasts.widest_before(forecast, 20) == 4
