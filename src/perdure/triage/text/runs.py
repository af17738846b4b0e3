"""Runs of failure lines: what is followed by many calm lines was survived, and is not a cause of what came later."""

from __future__ import annotations

from perdure.triage.text.logtext import TextBlock, TextWindow
from perdure.triage.text.prefixes import rank_of

CALM_LINES = 150
"""This many lines a task without a sign of failure, between two signs, say that the first was survived."""

MAX_RANKS = 4096
SAMPLE_BYTES = 4096
"""Of each block so much is looked at for the tasks that write into this log."""


class Runs:
    """Counts the runs of failure lines of a log, as its failure lines come."""

    def __init__(self) -> None:
        self._window: TextWindow | None = None
        self._last_line = 0
        self._ranks: set[str] = set()
        self._number = 0

    def enter(self, block: TextBlock) -> None:
        """Say that the lines of this block come next."""
        sample = block.window.data[block.start : min(block.end, block.start + SAMPLE_BYTES)]
        if len(self._ranks) < MAX_RANKS:
            self._ranks.update(filter(None, map(rank_of, sample.split(b"\n"))))

    def of(self, line: int, window: TextWindow, near: bool) -> int:
        """The number of the run that this failure line belongs to; `near`: it is in that of the one before it."""
        if self._window is None or not (near or self._goes_on(line, window)):
            self._number += 1
        self._window, self._last_line = window, line
        return self._number

    def is_calm_at(self, line: int) -> bool:
        """True where a failure line there would begin a new run."""
        return line - self._last_line > CALM_LINES * (len(self._ranks) or 1)

    def _goes_on(self, line: int, window: TextWindow) -> bool:
        before = self._window
        if before is window:
            return not self.is_calm_at(line)
        if before is None or before.source is not window.source:
            return False
        return before.goes_on or not self.is_calm_at(line)
