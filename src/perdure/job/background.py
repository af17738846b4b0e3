"""One thing that may take for ever, done again and again alongside what must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundRun(Generic[T]):
    """Runs `work` in a thread of its own, never twice at once; a run that hangs is left hanging."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._thread: threading.Thread | None = None
        self._begun_s = 0.0
        self.result: T | None = None  # of the last run that has ended

    def start(self, now: float, every_s: float = 0.0) -> None:
        """Begin a run, unless one is under way or the last began less than `every_s` ago."""
        if self._thread is None or (not self.is_running and now - self._begun_s >= every_s):
            self._begun_s = now
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def running_s(self, now: float) -> float:
        """How long the current run has taken so far, in seconds; 0 without one."""
        return now - self._begun_s if self.is_running else 0.0

    def wait(self, seconds: float) -> None:
        """Until the run has ended, but no longer than that."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        self.result = self._work()
