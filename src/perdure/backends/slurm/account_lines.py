"""Lines that only accounting has, of jobs that were over: a slurmctld that restarts sends the older one again.

The controller takes no line for a job that is over, and keeps the one about the failure before. When it starts, it
sends accounting the jobs that it still knows with that one.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from perdure.backends.slurm.plans import Accounted

MAX_LINES = 5000
SENT_S = 20.0
"""This long after a look that found it restarted, slurmctld has sent what it knows."""


class AccountLines:
    """Which lines are to be written again, and when. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, Accounted] = {}  # by job
        self._due: dict[str, Accounted] = {}
        self._due_s = 0.0
        self._boot = ""

    def note(self, lines: Iterable[Accounted]) -> None:
        """Remember what was written; the oldest is forgotten first."""
        with self._lock:
            for line in lines:
                self._due.pop(line.job_id, None)
                self._lines.pop(line.job_id, None)
                self._lines[line.job_id] = line
            while len(self._lines) > MAX_LINES:
                del self._lines[next(iter(self._lines))]

    def looked(self, boot: str, over: Collection[str], now: float) -> tuple[Accounted, ...]:
        """What to write now; `boot` is when slurmctld started, `over` names the jobs that it knows to be over.

        A line of a job that goes on, or that the controller has forgotten, is dropped: no older one comes any more.
        """
        with self._lock:
            restarted, self._boot = self._boot not in ("", boot), boot
            self._lines = {job: line for job, line in self._lines.items() if job in over}
            if restarted:
                self._due, self._due_s = dict(self._lines), now + SENT_S
            if not self._due or now < self._due_s:
                return ()
            due, self._due = tuple(self._due.values()), {}
            return due

    def put_off(self, lines: Iterable[Accounted]) -> None:
        """What could not be written is due at the next look, unless newer lines were written meanwhile."""
        with self._lock:
            self._due |= {line.job_id: line for line in lines if self._lines.get(line.job_id, line) is line}

    @property
    def any(self) -> bool:
        """Whether there is anything that could be written over."""
        with self._lock:
            return bool(self._lines or self._due)
