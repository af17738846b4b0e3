"""Backfilling: later jobs start early where, by the walltimes known, they delay no reservation.

Sources: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995 (EASY); A. Mu'alem and D. Feitelson, "Utilization,
predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12, 2001.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.scheduling.protocol import StatelessPolicy
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Easy(StatelessPolicy):
    """In the order of arrival; the first job that does not fit gets a reservation, others may pass it only beside it.

    GPUs are counted for reservations, wherever they are.
    """

    name: str = "easy"

    def order(self, view: View) -> Iterator[int]:
        queue = iter(tuple(view.waiting))
        for row in queue:
            yield row
            if row in view.waiting:
                break
        else:
            return
        start, spare = reservation(view, view.gpus[row])
        for later in queue:
            beside = view.gpus[later] <= spare
            if beside or view.expected_end(later) <= start:
                yield later
                if beside and later in view.running:
                    spare -= view.gpus[later]


def reservation(view: View, gpus: int) -> tuple[int, int]:
    """When so many GPUs are free by what is known, and how many more are free then."""
    start, free = view.now, view.free_gpus
    for end, row in sorted((view.expected_end(row), row) for row in view.running):
        if free >= gpus and end > start:
            break
        start, free = end, free + view.gpus[row]
    return start, free - gpus


@dataclass(frozen=True, slots=True)
class Conservative(StatelessPolicy):
    """In the order of arrival; every job that does not fit gets a reservation, made again after each event."""

    name: str = "conservative"

    def order(self, view: View) -> Iterator[int]:
        forecast = Forecast(view.now, view.free_gpus)
        for row in view.running:
            forecast.add(view.expected_end(row), view.gpus[row])
        for row in tuple(view.waiting):
            length = view.expected_end(row) - view.now
            start = forecast.earliest(view.gpus[row], length)
            if start == view.now:
                yield row
            forecast.reserve(start, length, view.gpus[row])


class Forecast:
    """GPUs that will be free: from each tick of `ticks` to the next, `free`."""

    def __init__(self, now: int, free: int) -> None:
        self.ticks, self.free = [now], [free]

    def add(self, tick: int, gpus: int) -> None:
        """So many more are free from a tick on."""
        for i in range(self._cut(tick), len(self.free)):
            self.free[i] += gpus

    def earliest(self, gpus: int, length: int) -> int:
        """The first tick from which so many are free for so long; they are when all jobs are over."""
        start = 0
        for i, free in enumerate(self.free):
            if self.ticks[i] >= self.ticks[start] + length and i > start:
                break
            if free < gpus:
                start = i + 1
        return self.ticks[start]

    def reserve(self, start: int, length: int, gpus: int) -> None:
        """Take so many for so long."""
        first, last = self._cut(start), self._cut(start + length)
        for i in range(first, last):
            self.free[i] -= gpus

    def _cut(self, tick: int) -> int:
        """Let a stretch begin at the tick; where it stands."""
        i = bisect_left(self.ticks, tick)
        if i == len(self.ticks) or self.ticks[i] != tick:
            self.ticks.insert(i, tick)
            self.free.insert(i, self.free[i - 1])
        return i
