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
    """In the order of arrival; the first job that does not fit gets a reservation, which those that pass it may not
    delay.

    A later job passes if by its time limit it ends before the reservation begins, or if it fits into the GPUs that are
    spare when the reservation begins. Only the first job is protected, so others can be delayed, but each becomes the
    first in its turn: with true limits no job starves. GPUs are counted for reservations, wherever they are; a
    placement that refuses gangs can break the promise.

    A pass sorts the running jobs once and looks at each waiting job once. Jobs without a limit count with their true
    running time, which flatters the policy.
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
    """The tick at which `gpus` are free by what is known, and how many more are free then.

    >>> view = View([3, 2, 4], [0, 0, 0], [10, 20, 5], [0, 0, 0], [0] * 3, [0] * 3, ("",), ("",), 6, ticks_per_s=1)
    >>> view.running, view.free_gpus = {0: 0, 1: 0}, 1
    >>> reservation(view, 4)  # job 0 ends at 10 and leaves 3 to the one that is free
    (10, 0)
    """
    start, free = view.now, view.free_gpus
    for end, row in sorted((view.expected_end(row), row) for row in view.running):
        if free >= gpus and end > start:
            break
        start, free = end, free + view.gpus[row]
    return start, free - gpus


@dataclass(frozen=True, slots=True)
class Conservative(StatelessPolicy):
    """In the order of arrival; every job that does not fit gets a reservation, made again after each event.

    No job is delayed by one that came later, as far as limits are true. Made again: a job that ends early moves all
    reservations forward. A pass costs ``O(waiting jobs * (running + waiting jobs))``, the slowest of the rankings; on
    long queues use `Easy`.
    """

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
    """GPUs that will be free: ``free[i]`` from tick ``ticks[i]`` to the next, the last one for ever.

    `ticks` ascend strictly and begin at now. Neighbours may have equal counts: stretches are cut, never joined.

    >>> forecast = Forecast(now=0, free=1)
    >>> forecast.add(10, 3)
    >>> forecast.earliest(2, length=5)
    10
    >>> forecast.reserve(10, 5, 2)
    >>> forecast.ticks, forecast.free
    ([0, 10, 15], [1, 2, 4])
    """

    def __init__(self, now: int, free: int) -> None:
        self.ticks, self.free = [now], [free]

    def add(self, tick: int, gpus: int) -> None:
        """`gpus` more are free from a tick on."""
        for i in range(self._cut(tick), len(self.free)):
            self.free[i] += gpus

    def earliest(self, gpus: int, length: int) -> int:
        """The first tick from which `gpus` are free for `length` ticks. There is one, if they fit an empty cluster.

        One walk: wherever too few are free, the candidate moves behind that stretch.
        """
        start = 0
        for i, free in enumerate(self.free):
            if self.ticks[i] >= self.ticks[start] + length and i > start:
                break
            if free < gpus:
                start = i + 1
        return self.ticks[start]

    def reserve(self, start: int, length: int, gpus: int) -> None:
        """Take `gpus` for `length` ticks; they must be free, as `earliest` found."""
        first, last = self._cut(start), self._cut(start + length)
        for i in range(first, last):
            self.free[i] -= gpus

    def _cut(self, tick: int) -> int:
        """Make a stretch begin at the tick, which is not before the first one; return its position."""
        i = bisect_left(self.ticks, tick)
        if i == len(self.ticks) or self.ticks[i] != tick:
            self.ticks.insert(i, tick)
            self.free.insert(i, self.free[i - 1])
        return i
