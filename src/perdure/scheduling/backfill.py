"""Backfilling: later jobs start early where, by the walltimes known, they delay no reservation.

Sources: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995 (EASY); A. Mu'alem and D. Feitelson, "Utilization,
predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12, 2001.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Easy:
    """In the order of arrival; the first job that does not fit gets a reservation, others may pass it only beside it.

    GPUs are counted for reservations, wherever they are.
    """

    blocks: bool = False
    preemptive: bool = False
    name: str = "easy"

    def ranking(self, view: View) -> OneReservation:
        return OneReservation(view)


@dataclass(frozen=True, slots=True)
class Conservative:
    """In the order of arrival; every job that does not fit gets a reservation, made anew after each event."""

    blocks: bool = False
    preemptive: bool = False
    name: str = "conservative"

    def ranking(self, view: View) -> AllReservations:
        return AllReservations(view)


@dataclass(slots=True)
class OneReservation:
    """EASY at work."""

    view: View

    def arrive(self, row: int) -> None:
        pass

    def leave(self, row: int) -> None:
        pass

    def order(self) -> Iterator[int]:
        view, queue = self.view, iter(tuple(self.view.waiting))
        for row in queue:
            yield row
            if row in view.waiting:
                break
        else:
            return
        start, spare = self._reservation(view.gpus[row])
        for later in queue:
            beside = view.gpus[later] <= spare
            if beside or view.expected_end(later) <= start:
                yield later
                if beside and later in view.running:
                    spare -= view.gpus[later]

    def next_change(self) -> int | None:
        return None

    def _reservation(self, gpus: int) -> tuple[int, int]:
        """When so many GPUs are free by what is known, and how many more are free then."""
        view, free = self.view, self.view.free_gpus
        start = view.now
        for end, row in sorted((view.expected_end(row), row) for row in view.running):
            if free >= gpus and end > start:
                break
            start, free = end, free + view.gpus[row]
        return start, free - gpus


@dataclass(slots=True)
class AllReservations:
    """Conservative backfilling at work."""

    view: View

    def arrive(self, row: int) -> None:
        pass

    def leave(self, row: int) -> None:
        pass

    def order(self) -> Iterator[int]:
        view = self.view
        forecast = Forecast(view.now, view.free_gpus)
        for row in view.running:
            forecast.add(view.expected_end(row), view.gpus[row])
        for row in tuple(view.waiting):
            length = view.expected_end(row) - view.now
            start = forecast.earliest(view.gpus[row], length)
            if start == view.now:
                yield row
            forecast.reserve(start, length, view.gpus[row])

    def next_change(self) -> int | None:
        return None


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
