"""Ranking by a key: the order is sorted anew whenever it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from perdure.scheduling.protocol import Ranking
from perdure.scheduling.view import View

Key = Callable[[View, int], float | tuple[float, ...]]


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
