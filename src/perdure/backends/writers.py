"""Which attempts wrote to which path recently.

A resource manager cuts a job's file when an attempt starts, unless it is told to append.
"""

from __future__ import annotations

import math
import os.path
from collections import OrderedDict
from collections.abc import Iterable

from msgspec.structs import replace

from perdure.backends.ownership import Span
from perdure.model.jobs import Attempt

MAX_STARTS = 20_000


class Writers:
    """What the looks reported of paths. Bounded: of more than `MAX_STARTS` the paths seen first are forgotten."""

    def __init__(self) -> None:
        self._spans: OrderedDict[str, dict[tuple[str, int], Span]] = OrderedDict()
        self._count = 0
        self._running: frozenset[tuple[str, tuple[str, int]]] = frozenset()
        self._looked_s = 0.0

    def note(self, attempts: Iterable[Attempt], whole_s: float | None = None) -> None:
        """Remember who writes where.

        `whole_s` is the instant of a look that saw all that runs: what it no longer shows ended before it.
        """
        running: set[tuple[str, tuple[str, int]]] = set()
        for attempt in attempts:
            for path in {_plain(attempt.stdout), _plain(attempt.stderr)} - {"", "/dev/null"}:
                spans = self._spans.setdefault(path, {})
                key = (attempt.id.job_id, attempt.id.incarnation)
                self._count += key not in spans
                end_s = math.inf if attempt.end_s is None else attempt.end_s
                spans[key] = Span(attempt.id.job_id, attempt.start_s, end_s)
                if attempt.end_s is None:
                    running.add((path, key))
        if whole_s is not None:
            self._end(self._running - running)
            self._running, self._looked_s = frozenset(running), whole_s
        while self._count > MAX_STARTS:
            self._count -= len(self._spans.popitem(last=False)[1])

    def _end(self, gone: Iterable[tuple[str, tuple[str, int]]]) -> None:
        for path, key in gone:
            span = self._spans.get(path, {}).get(key)
            if span is not None and span.end_s == math.inf:
                self._spans[path][key] = replace(span, end_s=max(span.start_s, self._looked_s))

    def others(self, path: str, attempt: Attempt) -> tuple[Span, ...]:
        """Attempts of other jobs that had this path, and later ones of its own. A heterogeneous job is one job."""
        job = attempt.id.job_id.partition("+")[0]
        return tuple(
            span
            for (job_id, incarnation), span in self._spans.get(_plain(path), {}).items()
            if job_id.partition("+")[0] != job or (job_id == attempt.id.job_id and incarnation > attempt.id.incarnation)
        )


def _plain(path: str) -> str:
    """The path without ``..``: two jobs may name one file from two directories."""
    return os.path.normpath(path) if "/../" in path else path
