"""Policies that give all GPUs anew after each event, compiled: shortest remaining first, least attained service."""

from __future__ import annotations

from perdure.simulation.compiled.indices import refresh
from perdure.simulation.compiled.kernel import entry, kernel
from perdure.simulation.compiled.levels import GITTINS
from perdure.simulation.compiled.moving import (
    cease_to_run,
    come,
    come_down,
    next_move,
    rise,
    settle_turns,
    sink,
)
from perdure.simulation.compiled.passes import all_fit, give
from perdure.simulation.compiled.runners import withdraw
from perdure.simulation.compiled.state import (
    ASKS,
    DONE,
    begin_instant,
    due_arrival,
    due_end,
    end_of_events,
    finish,
    heed,
    next_event,
)
from perdure.simulation.compiled.ticks import NEVER


@entry
def advance(state, levels, asks, resumed):  # type: ignore[no-untyped-def]
    """Go on until nothing is left to happen, or until attempts failed about which somebody must be asked."""
    while True:
        if not resumed:
            now = min(next_event(state), next_move(state, levels))
            if now == NEVER:
                return DONE
            begin_instant(state, now)
            row = due_end(state)
            while row >= 0:
                withdraw(levels, row)
                cease_to_run(state, levels, row)
                finish(state, row, asks)
                row = due_end(state)
            if state.questions.tally[0].many:
                return ASKS
        else:
            heed(state)
        resumed = False
        row = due_arrival(state)
        while row >= 0:
            come(state, levels, row)
            row = due_arrival(state)
        end_of_events(state)
        _order(state, levels)


@kernel
def _order(state, levels):  # type: ignore[no-untyped-def]
    """Move jobs between levels, and give out GPUs."""
    sinking = sink(state, levels)
    if not all_fit(state) or (levels.rules.late and levels.rules.by == GITTINS):
        refresh(state, levels)  # else nobody looks at the order of the running jobs
    come_down(state, levels, sinking)
    rise(state, levels)
    if state.tally[0].waiting:
        give(state, levels)
    settle_turns(levels, sinking)
