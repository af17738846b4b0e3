"""Backfilling, compiled: EASY and conservative:replan (`perdure.scheduling.backfill` defines them).

Waiting jobs are in lines by size (`tournament_tree`), running ones in an agenda (`expected_ends`). Lengths are those
known beforehand: the walltime of a job, or else its true running time.

The plain policies look at each waiting job after each event. Here only those are looked at that can start: of each size
the first one that is short enough, and of these the one that came first. That is the order of the plain pass with the
jobs left out that it would pass over: within a pass fewer GPUs come to be free and the gap before the reservation does
not grow, so a job that was too long or too wide stays so. GPUs are counted for reservations, wherever
they are; a job that finds no place for its gang, though enough GPUs are free, is passed over as in the plain pass.

Sources: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995 (EASY); A. Mu'alem and D. Feitelson, IEEE TPDS 12,
2001.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.scheduling.backfill import Easy, ReplannedConservative
from perdure.simulation.compiled.event_heap import NEVER
from perdure.simulation.compiled.expected_ends import Agenda, empty_agenda, expect, reservation, strike
from perdure.simulation.compiled.free_gpus import Forecast, empty_forecast, forecast_from, place_in, widest_before
from perdure.simulation.compiled.kernel import entry, kernel
from perdure.simulation.compiled.loop import kernels, run
from perdure.simulation.compiled.placements import looks_for_itself
from perdure.simulation.compiled.state import start
from perdure.simulation.compiled.tournament_tree import (
    ANY,
    Lines,
    empty_lines,
    first_in,
    leave,
    narrowest,
    row_in,
    stand,
)
from perdure.simulation.workload import Workload


class Backfill(NamedTuple):
    """The waiting and the running jobs of a backfilling policy.

    Between passes the agenda has one entry for each running job, at its start plus its length, and `lines` has each
    waiting job once. `forecast` and `started` mean something within a pass only.
    """

    all_reserve: bool  # conservative: every waiting job has a reservation; else the first one alone (EASY)
    walltime: NDArray[np.int64]  # of each job, 0 where there is none
    lines: Lines
    agenda: Agenda
    forecast: Forecast
    started: NDArray[np.int64]  # in this pass


def prepare(policy: Easy | ReplannedConservative, jobs: Workload, total_gpus: int) -> Backfill:
    """Nobody waits, nobody runs. Conservative reservations need a forecast; for EASY it has no room."""
    all_reserve = isinstance(policy, ReplannedConservative)
    most = min(len(jobs), total_gpus)
    forecast = empty_forecast(most + 2 * len(jobs) + 2 if all_reserve else 0)
    lines, agenda = empty_lines(jobs.gpus), empty_agenda(most)
    return Backfill(all_reserve, jobs.walltime, lines, agenda, forecast, np.zeros(most, np.int64))


@kernel
def _arrive(state, backfill, row):  # type: ignore[no-untyped-def]
    """A job that came, or came back, waits behind all of its size.

    Its length may be another than that of its last attempt.
    """
    stand(backfill.lines, row, _length(state, backfill, row))


@kernel
def _leave(state, backfill, row):  # type: ignore[no-untyped-def]
    """The end of a running job is no longer expected.

    It is found by its tick, so that its start and its length still stand.
    """
    strike(backfill.agenda, state.job[row].resumed + _length(state, backfill, row), state.job[row].gpus)


@kernel
def _give(state, backfill):  # type: ignore[no-untyped-def]
    """A pass, unless fewer GPUs are free than anybody who waits asks for."""
    if state.places.tally[0].total_free >= narrowest(backfill.lines):
        if backfill.all_reserve:
            _give_with_all_reserving(state, backfill)
        else:
            _give_with_one_reserving(state, backfill)


@kernel
def _length(state, backfill, row):  # type: ignore[no-untyped-def]
    """Ticks that the present attempt is expected to take; at least one.

    A job that is started goes on from nothing, as nobody is preempted: what it ran before does not count.
    """
    limit = backfill.walltime[row]
    return max(1, limit if limit else state.work[state.job[row].record])


@kernel
def _give_with_one_reserving(state, backfill):  # type: ignore[no-untyped-def]
    """EASY: in the order of arrival; the first that does not fit has a reservation, which later ones must not delay.

    Two parts: start jobs until one does not fit; then those that end before its reservation, or fit into the `spare`
    GPUs next to it. A size of which one found no place is done with, unless each job looks for itself.
    """
    lines, now = backfill.lines, state.tally[0].now
    _look_from_the_beginning(lines)
    while True:
        _look_on(lines, ANY, NEVER)
        row = _first(state, lines)
        if row < 0:
            return
        if not _try(state, backfill, row):
            break
        expect(backfill.agenda, now + _length(state, backfill, row), state.job[row].gpus)
    tick, spare = reservation(backfill.agenda, now, state.places.tally[0].total_free, np.int64(state.job[row].gpus))
    lines.sizes[lines.job[row].size_of].candidate += 1
    while True:
        _look_beside(lines, tick - now, spare, state.places.tally[0].total_free)
        row = _first(state, lines)
        if row < 0:
            return
        size = lines.sizes[lines.job[row].size_of]
        if _try(state, backfill, row):
            expect(backfill.agenda, now + _length(state, backfill, row), size.gpus)
            if _length(state, backfill, row) > tick - now:
                spare -= size.gpus
        elif looks_for_itself(state.places, row):
            size.candidate += 1
        else:
            size.candidate = -1


@kernel
def _give_with_all_reserving(state, backfill):  # type: ignore[no-untyped-def]
    """Conservative: in the order of arrival; who cannot start reserves the earliest stretch that is free.

    Only who starts now matters, for all reservations are made again after the next event. From the first tick on at
    which fewer GPUs will be free than anybody needs, the `horizon`, nobody fits any more. So nobody who starts now can
    last beyond it, and no reservation can begin before it and last beyond it: what lies beyond is not looked at.
    """
    lines, now, started = backfill.lines, state.tally[0].now, 0
    horizon, widest, needed = NEVER, NEVER, narrowest(lines)
    forecast_from(backfill.forecast, now, state.places.tally[0].total_free)
    _look_from_the_beginning(lines)
    while horizon > now:
        _look_on(lines, min(horizon - now, ANY), widest)
        row = _first(state, lines)
        if row < 0:
            break
        size, length = lines.sizes[lines.job[row].size_of], _length(state, backfill, row)
        size.candidate += 1
        tick, new = place_in(backfill.forecast, backfill.agenda, size.gpus, length, needed, horizon)
        if new < horizon:
            horizon, widest = new, widest_before(backfill.forecast, new)
        if tick == now and _try(state, backfill, row):
            backfill.started[started] = row
            started += 1
    for i in range(started):
        row = backfill.started[i]
        expect(backfill.agenda, now + _length(state, backfill, row), state.job[row].gpus)


@kernel
def _try(state, backfill, row):  # type: ignore[no-untyped-def]
    """Start a waiting job, if there is room; it then is in no line.

    Its expected end is for the caller to write down.
    """
    if not start(state, row):
        return False
    leave(backfill.lines, row)
    return True


@kernel
def _first(state, lines):  # type: ignore[no-untyped-def]
    """Of the candidates of all sizes the one that came first; -1 for none.

    Sizes are few, whatever the number of jobs.
    """
    best = np.int64(-1)
    for i in range(len(lines.sizes)):
        size = lines.sizes[i]
        if size.candidate >= 0:
            row = row_in(lines, size, size.candidate)
            if best < 0 or state.job[row].came < state.job[best].came:
                best = row
    return best


@kernel
def _look_from_the_beginning(lines):  # type: ignore[no-untyped-def]
    """Reset the candidate of each size to its first slot, whether or not a job is there: `_look_on` finds one."""
    for i in range(len(lines.sizes)):
        lines.sizes[i].candidate = 0


@kernel
def _look_on(lines, longest, widest):  # type: ignore[no-untyped-def]
    """Advance in all lines to the next job that is no longer and no wider, if the present one is longer or wider.

    `longest` is in ticks. A size without such a job is done with for this pass.
    """
    for i in range(len(lines.sizes)):
        size = lines.sizes[i]
        if size.candidate >= 0:
            size.candidate = first_in(lines, size, size.candidate, longest) if size.gpus <= widest else -1


@kernel
def _look_beside(lines, longest, spare, free):  # type: ignore[no-untyped-def]
    """As `_look_on`; a job that fits into the `spare` GPUs next to the reservation may be of any length."""
    for i in range(len(lines.sizes)):
        size = lines.sizes[i]
        if size.candidate >= 0:
            limit = ANY if size.gpus <= spare else longest
            size.candidate = first_in(lines, size, size.candidate, limit) if size.gpus <= free else -1


kernels(Backfill, _arrive, _leave, _give)


@entry
def advance(state, backfill, asks, resumed):  # type: ignore[no-untyped-def]
    """`loop.run` for these policies."""
    return run(state, backfill, asks, resumed)
