"""Ranking by a key: the order is re-sorted whenever it is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from perdure.scheduling.protocol import Ranking
from perdure.scheduling.view import View

Key = Callable[[View, int], float | tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class KeyedPolicy(ABC):
    """A preemptive policy in one class: its `name`, and the `key` of a job; the jobs with the least key run.

    `inert`: see `AllByKey`. For keys that change with time between events no pass is made: a running job is preempted
    at the next event, not at the instant at which another one passes it.

    >>> class YoungestFirst(KeyedPolicy):
    ...     name = "youngest-first"
    ...     def key(self, view, row):
    ...         return -view.submit[row]
    >>> YoungestFirst().preemptive
    True
    """

    inert: bool = False
    blocks: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    @abstractmethod
    def key(self, view: View, row: int) -> float | tuple[float, ...]:
        """By what the job is ranked now, running or waiting; the least first. Asked for each job at each event: keep it
        cheap.
        """

    def ranking(self, view: View) -> Ranking:
        return AllByKey(view, self.key, self.inert)


@dataclass(slots=True)
class AllByKey(Ranking):
    """Running and waiting jobs by a key, the least first.

    Among equal ones those that run come first, so that no job is preempted for its equal; then the order of arrival.
    With `inert` equal jobs stay as they were after the last event instead, newcomers last, as in simulators that
    keep one list and sort it again and again (Tiresias').

    `stood` is the last order, sorted again stably: two sorts of a nearly sorted list, ``O(n)`` comparisons of n active
    jobs and n keys an event. `came` numbers arrivals; a preempted job keeps its number, a next attempt gets a new one.
    """

    view: View
    key: Key
    inert: bool = False
    came: dict[int, int] = field(default_factory=dict)
    count: int = 0
    stood: list[int] = field(default_factory=list)

    def arrive(self, row: int) -> None:
        self.came[row] = self.count
        self.count += 1
        self.stood.append(row)

    def leave(self, row: int) -> None:
        del self.came[row]
        self.stood.remove(row)

    def order(self) -> Iterable[int]:
        if not self.inert:
            self.stood.sort(key=lambda row: (row not in self.view.running, self.came[row]))
        self.stood.sort(key=lambda row: self.key(self.view, row))
        return self.stood
