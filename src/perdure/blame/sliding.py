"""The attempts of the last window: new ones are added, old ones fall out."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

from perdure.blame.builders.attempts import AttemptRow

MOST_ROWS = 50_000
"""Attempts that are looked at together; beyond it the oldest fall out early."""


class Sliding:
    """A window over attempts by the instant of their end. They may come late and in any order; a key counts once.

    Invariant: the heap, ordered by (end, number of arrival), and the rows by key hold the same attempts.

    >>> def row(end_s): return AttemptRow(end_s, "ada", "train", ("n1",), failed=False)
    >>> window = Sliding(length_s=60.0)
    >>> [each.end_s for each in window.slide([("b", row(50.0)), ("a", row(10.0)), ("a", row(10.0))], now=60.0)]
    [10.0, 50.0]
    >>> len(window.slide([], now=70.0))  # an end exactly one length ago is outside
    1
    """

    def __init__(self, length_s: float, most: int = MOST_ROWS) -> None:
        self._length_s, self._most = length_s, most
        self._number = count()
        self._rows: list[tuple[float, int, str]] = []  # a heap by end
        self._by_key: dict[str, AttemptRow] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def slide(self, new: Iterable[tuple[str, AttemptRow]], now: float) -> tuple[AttemptRow, ...]:
        """Add rows by key, drop what ended `length_s` ago or earlier, and return the rest, the oldest end first.

        `now` is in seconds on the clock of the rows. Costs
        ``O(log n)`` a row that comes or goes, and sorting the window for the answer.
        """
        for key, row in new:
            if key not in self._by_key and row.end_s > now - self._length_s:
                heappush(self._rows, (row.end_s, next(self._number), key))
                self._by_key[key] = row
        while self._rows and (self._rows[0][0] <= now - self._length_s or len(self._rows) > self._most):
            _, _, key = heappop(self._rows)
            del self._by_key[key]
        return tuple(self._by_key[key] for _, _, key in sorted(self._rows))
