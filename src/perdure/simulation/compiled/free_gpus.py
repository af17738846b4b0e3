"""The GPUs that will be free at each tick, compiled; see `perdure.scheduling.backfill.Forecast`.

Conservative backfilling makes all reservations again after each event. What is free is a step function of the tick:
stretches, each from its own tick to that of the next one, the last one without end. Only as much of it is worked out
from the agenda as reservations ask for, since most waiting jobs find no place before the `horizon`.
"""

from __future__ import annotations

from typing import NamedTuple

from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.kernel import LONG, Records, kernel, records


class Forecast(NamedTuple):
    """What is free from now on, known as far as it has been asked for.

    Stretches are in ascending order of their ticks and hold everywhere what is free besides running jobs and
    reservations. Reservations lie in what has been worked out. It is made again in each pass.
    """

    stretch: Records  # from each tick to that of the next, this many GPUs are free
    tally: Records  # one record


def empty_forecast(most: int) -> Forecast:
    """A forecast of at most `most` stretches: one for each end that is expected, and two for each reservation."""
    tally = records(1, many=LONG, ends=LONG, free=LONG)  # stretches; ends of the agenda in them, and free by these
    return Forecast(records(most, tick=LONG, free=LONG), tally)


@kernel
def forecast_from(forecast, now, free):  # type: ignore[no-untyped-def]
    """Begin with what is free now, one stretch without end: nothing is reserved, no end has been counted."""
    forecast.stretch[0].tick = now
    forecast.stretch[0].free = free
    forecast.tally[0].many = 1
    forecast.tally[0].ends = 0


@kernel
def place_in(forecast, agenda, gpus, length, needed, horizon):  # type: ignore[no-untyped-def]
    """Reserve the earliest stretch before the horizon in which this many GPUs are free for this long.

    Returns its tick, `NEVER` if there is none; and the horizon then, the first tick at which less is free than
    `needed`, the least that any waiting job asks for. What lies beyond the horizon may not have been worked out, and
    nobody needs it. The horizon only comes nearer, for reservations only take.
    """
    begin, end = find_in(forecast, agenda, gpus, length, horizon)
    if begin < 0:
        return NEVER, horizon
    tick = forecast.stretch[begin].tick
    cut(forecast, end, tick + length)
    for i in range(begin, end):
        forecast.stretch[i].free -= gpus
        if forecast.stretch[i].free < needed:
            horizon = min(horizon, forecast.stretch[i].tick)
    return tick, horizon


@kernel
def widest_before(forecast, horizon):  # type: ignore[no-untyped-def]
    """The most GPUs that are free at a tick before the horizon: a wider job finds no place, however short it is."""
    widest, i = 0, 0
    while i < forecast.tally[0].many and forecast.stretch[i].tick < horizon:
        widest = max(widest, forecast.stretch[i].free)
        i += 1
    return widest


@kernel
def find_in(forecast, agenda, gpus, length, horizon):  # type: ignore[no-untyped-def]
    """The first and the end position of the stretches that hold the reservation; -1 for none.

    The last one of these may have to be cut. Stretches are worked out from the agenda as the search comes to them. One
    walk: wherever too few are free, the search begins again behind that stretch.
    """
    begin, i = 0, 0
    while i < forecast.tally[0].many or go_on(forecast, agenda):
        stretch = forecast.stretch[i]
        if i > begin and stretch.tick >= forecast.stretch[begin].tick + length:
            return begin, i
        if stretch.tick >= horizon:
            return -1, -1
        if stretch.free < gpus:
            begin = i + 1
        i += 1
    return begin, i


@kernel
def go_on(forecast, agenda):  # type: ignore[no-untyped-def]
    """Add the stretch from the next expected end on, if there is one.

    Ends of one tick make one stretch; an end that is overdue counts from the next tick on.
    """
    tally = forecast.tally[0]
    if tally.ends == agenda.many[0]:
        return False
    now, last = forecast.stretch[0].tick, forecast.stretch[tally.many - 1]
    tick, free = max(now + 1, agenda.tick[tally.ends]), last.free
    while tally.ends < agenda.many[0] and max(now + 1, agenda.tick[tally.ends]) == tick:
        free += agenda.gpus[tally.ends]
        tally.ends += 1
    forecast.stretch[tally.many].tick = tick
    forecast.stretch[tally.many].free = free
    tally.many += 1
    return True


@kernel
def cut(forecast, i, tick):  # type: ignore[no-untyped-def]
    """Split the stretches at the tick, which is in the one before place i or at the beginning of that.

    What is free stays the same at every tick; there is one stretch more, unless one began there before.
    """
    tally = forecast.tally[0]
    if i < tally.many and forecast.stretch[i].tick == tick:
        return
    j = tally.many
    while j > i:
        forecast.stretch[j].tick = forecast.stretch[j - 1].tick
        forecast.stretch[j].free = forecast.stretch[j - 1].free
        j -= 1
    forecast.stretch[i].tick = tick
    forecast.stretch[i].free = forecast.stretch[i - 1].free
    tally.many += 1
