"""The ends of running jobs that a scheduler expects, compiled: GPUs that come free, in the order of the ticks.

What is expected is what a scheduler can know: the start plus the walltime, or plus the true running time for a job
without a limit (`View.expected_end`). A job may end earlier; one that outstays its limit is expected from tick to tick.

A sorted array: no more jobs run than there are GPUs, and a pass reads it from the front. Insertion moves what is
behind, ``O(running jobs)``, in one stretch of memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.simulation.compiled.kernel import kernel


class Agenda(NamedTuple):
    """Ends that are expected, the earliest first.

    `tick` ascends over the first `many` entries; what is behind them means nothing.
    """

    tick: NDArray[np.int64]
    gpus: NDArray[np.int64]
    many: NDArray[np.int64]  # one number: how many they are


def empty_agenda(most: int) -> Agenda:
    """An agenda of at most `most` ends: of the jobs that can run at the same time."""
    return Agenda(np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(1, np.int64))


@kernel
def expect(agenda, tick, gpus):  # type: ignore[no-untyped-def]
    """Expect `gpus` to come free at a tick, before those that are expected at the same tick already."""
    place, i = place_of_tick(agenda, tick), agenda.many[0]
    while i > place:
        agenda.tick[i] = agenda.tick[i - 1]
        agenda.gpus[i] = agenda.gpus[i - 1]
        i -= 1
    agenda.tick[place] = tick
    agenda.gpus[place] = gpus
    agenda.many[0] += 1


@kernel
def strike(agenda, tick, gpus):  # type: ignore[no-untyped-def]
    """Remove an end that is no longer expected: at this tick, of this many GPUs. It must be there, for the search has
    no end.

    Of equal entries any may go, as they mean the same.
    """
    i = place_of_tick(agenda, tick)
    while agenda.gpus[i] != gpus:
        i += 1
    agenda.many[0] -= 1
    while i < agenda.many[0]:
        agenda.tick[i] = agenda.tick[i + 1]
        agenda.gpus[i] = agenda.gpus[i + 1]
        i += 1


@kernel
def reservation(agenda, now, free, gpus):  # type: ignore[no-untyped-def]
    """The tick at which `gpus` are free by what is known, and how many more are free then; `free` are now.

    The same as `perdure.scheduling.backfill.reservation`: ends of one tick are counted together, and what should have
    ended by now is expected at the next tick. `gpus` is at most what the cluster has. Stops as soon as enough are free.
    """
    tick = now
    for i in range(agenda.many[0]):
        end = max(now + 1, agenda.tick[i])
        if free >= gpus and end > tick:
            break
        tick = end
        free += agenda.gpus[i]
    return tick, free - gpus


@kernel
def place_of_tick(agenda, tick):  # type: ignore[no-untyped-def]
    """How many ticks of an agenda or a plan come before this one: the place of the first that does not.

    A binary search.
    """
    low, high = np.int64(0), agenda.many[0]
    while low < high:
        middle = (low + high) >> 1
        if agenda.tick[middle] < tick:
            low = middle + 1
        else:
            high = middle
    return low
