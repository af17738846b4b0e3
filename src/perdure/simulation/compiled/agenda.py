"""When running jobs are expected to end, compiled: GPUs that come free, in the order of the ticks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import kernel


class Agenda(NamedTuple):
    """Ends that are expected, the earliest first."""

    tick: NDArray[np.int64]
    gpus: NDArray[np.int64]
    many: NDArray[np.int64]  # one number: how many they are


def empty_agenda(most: int) -> Agenda:
    """An agenda of at most so many ends."""
    return Agenda(np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(1, np.int64))


@kernel
def expect(agenda, tick, gpus):  # type: ignore[no-untyped-def]
    """Expect so many GPUs to come free at a tick."""
    place, i = _place(agenda, tick), agenda.many[0]
    while i > place:
        agenda.tick[i] = agenda.tick[i - 1]
        agenda.gpus[i] = agenda.gpus[i - 1]
        i -= 1
    agenda.tick[place] = tick
    agenda.gpus[place] = gpus
    agenda.many[0] += 1


@kernel
def strike(agenda, tick, gpus):  # type: ignore[no-untyped-def]
    """Strike out what is no longer expected."""
    i = _place(agenda, tick)
    while agenda.gpus[i] != gpus:
        i += 1
    agenda.many[0] -= 1
    while i < agenda.many[0]:
        agenda.tick[i] = agenda.tick[i + 1]
        agenda.gpus[i] = agenda.gpus[i + 1]
        i += 1


@kernel
def reservation(agenda, now, free, gpus):  # type: ignore[no-untyped-def]
    """When so many GPUs are free by what is known, and how many more are free then; `free` are now."""
    tick = now
    for i in range(agenda.many[0]):
        end = max(now + 1, agenda.tick[i])
        if free >= gpus and end > tick:
            break
        tick = end
        free += agenda.gpus[i]
    return tick, free - gpus


@kernel
def _place(agenda, tick):  # type: ignore[no-untyped-def]
    """How many ends are expected before a tick."""
    low, high = np.int64(0), agenda.many[0]
    while low < high:
        middle = (low + high) >> 1
        if agenda.tick[middle] < tick:
            low = middle + 1
        else:
            high = middle
    return low
