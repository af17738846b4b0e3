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
    """A preemptive policy in one class: its `name`, and the `key` of a job; those with the least run.

    `inert`: see `AllByKey`.
    """

    inert: bool = False
    blocks: ClassVar[bool] = False
    preemptive: ClassVar[bool] = True

    @abstractmethod
    def key(self, view: View, row: int) -> float | tuple[float, ...]:
        """By what the job is ranked now, running or waiting."""

    def ranking(self, view: View) -> Ranking:
        return AllByKey(view, self.key, self.inert)


@dataclass(slots=True)
class AllByKey(Ranking):
    """Running and waiting jobs by a key, the least first.

    Among equal ones those that run come first, so that no job is preempted for its equal; then the order of arrival.
    With `inert` equal jobs stay as they stood after the last event instead, newcomers last, as in simulators that
    keep one list and sort it again and again.
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
