"""Backfilling: later jobs start early where, by the walltimes known, they delay no reservation.

Sources: D. Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995 (EASY); A. Mu'alem and D. Feitelson, "Utilization,
predictability, workloads, and user runtime estimates in scheduling the IBM SP2 with backfilling", IEEE TPDS 12, 2001.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from perdure.scheduling.protocol import Ranking, StatelessPolicy
from perdure.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Easy(StatelessPolicy):
    """In the order of arrival; the first job that does not fit gets a reservation, which those that pass it may not
    delay.

    A later job passes if by its time limit it ends before the reservation begins, or if it fits into the GPUs that are
    spare when the reservation begins, which only those use up that still run then. Only the first job is protected, so
    others can be delayed, but each becomes the first in its turn: with true limits no job starves. GPUs are counted for
    reservations, wherever they are; a placement that refuses gangs can break the promise.

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
            lasts = view.expected_end(later) > start
            if not lasts or view.gpus[later] <= spare:
                yield later
                if lasts and later in view.running:
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
class Conservative:
    """In the order of arrival; every job that comes is promised a start that delays no promise made before.

    A promise is kept, as far as limits are true. When a job ends, the others move forward: one by one in the order of
    arrival, each as far as the others in their places allow (compression). So nobody is ever delayed by one that came
    later, nor by one that ends early, as in `ReplannedConservative`. A job that runs over its limit makes those give
    way whose promises it is in.

    Jobs without a limit count with their true running time, which flatters the policy. A pass in which a job has ended
    costs ``O(waiting jobs * (running + waiting jobs))``; on long queues use `Easy`.
    """

    name: str = "conservative"
    blocks: bool = False
    preemptive: bool = False

    def ranking(self, view: View) -> Promises:
        return Promises(view)


@dataclass(slots=True)
class Promises(Ranking):
    """Conservative backfilling at work: when each waiting job is to start, in the order in which they came.

    A promise in the past is one that could not be kept, without a place or behind a job over its limit; it is due
    at every event.
    """

    view: View
    begins: dict[int, int] = field(default_factory=dict)
    ended: bool = False  # whether a job has ended since the last pass

    def leave(self, row: int) -> None:  # noqa: ARG002
        self.ended = True

    def order(self) -> Iterator[int]:
        view, now = self.view, self.view.now
        forecast = Forecast.of_running(view)
        for row, begin in self.begins.items():
            self.begins[row] = max(begin, now)
            forecast.reserve(self.begins[row], self._length(row), view.gpus[row])
        moves = self.ended or any(self._is_overdue(row) for row in view.running)
        self.ended = False
        for row in tuple(view.waiting):
            if row not in self.begins or moves:
                self._promise(row, forecast)
            if self.begins[row] == now:
                yield row
                if row in view.running:
                    del self.begins[row]

    def next_change(self) -> int | None:
        """The next promised start, unless a job that runs may be over its limit by then: then its end is waited for."""
        view = self.view
        first = min((begin for begin in self.begins.values() if begin > view.now), default=None)
        if first is None or any(view.running[row] + self._length(row) <= first for row in view.running):
            return None
        return first

    def _promise(self, row: int, forecast: Forecast) -> None:
        """The earliest start, the others in their places."""
        gpus, length = self.view.gpus[row], self._length(row)
        if row in self.begins:
            forecast.reserve(self.begins[row], length, -gpus)
        self.begins[row] = forecast.earliest(gpus, length)
        forecast.reserve(self.begins[row], length, gpus)

    def _length(self, row: int) -> int:
        """Ticks that it is expected to run, from its start; nobody is preempted."""
        return max(1, self.view.walltime[row] or self.view.work[row])

    def _is_overdue(self, row: int) -> bool:
        return self.view.running[row] + self._length(row) <= self.view.now


@dataclass(frozen=True, slots=True)
class ReplannedConservative(StatelessPolicy):
    """As `Conservative`, but after each event all promises are made again from nothing, in the order of arrival.

    That breaks promises: where a job ends early, one that came first may take the place of one behind it, which then
    starts later than it was told. Slurm's backfill makes its reservations again like this.
    """

    name: str = "conservative:replan"

    def order(self, view: View) -> Iterator[int]:
        forecast = Forecast.of_running(view)
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

    @classmethod
    def of_running(cls, view: View) -> Forecast:
        """What the running jobs leave, and come to leave as they are expected to end."""
        forecast = cls(view.now, view.free_gpus)
        for row in view.running:
            forecast.add(view.expected_end(row), view.gpus[row])
        return forecast

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
        """Take `gpus` for `length` ticks, or give them back where they are negative."""
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
