"""Attempts that went well and wait for their logs to be read: of each job the latest, few of all."""

from __future__ import annotations

import threading
from collections import OrderedDict

from perdure.model.jobs import Attempt, Job

MAX_WAITING = 500
GOOD_BYTES = 1 << 20
"""This much of the end of such a log is read, besides its beginning: it holds every kind of line, if not every line."""


class GoodRunQueue:
    """A bounded queue. Safe to share between threads.

    Jobs of one user and one name are the same job: a hundred tasks of an array that end together are read once.
    What is dropped is the one that waits longest; the next good run of its job will do as well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: OrderedDict[tuple[str, str], tuple[Attempt, Job]] = OrderedDict()

    def put(self, attempt: Attempt, job: Job) -> None:
        """Queue an attempt in place of an earlier one of the same job."""
        with self._lock:
            self._waiting[job.user, job.name] = (attempt, job)
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)

    def take(self) -> tuple[Attempt, Job] | None:
        """The one that waits longest, with its job; None where none waits."""
        with self._lock:
            return self._waiting.popitem(last=False)[1] if self._waiting else None
