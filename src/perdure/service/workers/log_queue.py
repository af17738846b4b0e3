"""The logs of failed attempts: read side by side, and judged in turns that are fair to their users.

A log that does not answer keeps nobody waiting but its owner, and whoever has many that take long to judge comes after
those who had less of the judge's time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from perdure.errors import PerdureError
from perdure.model.jobs import Attempt
from perdure.model.output import Absent, Output, Why

PATIENCE_S = 20.0  # a log that cannot be read in this time is judged without
MOST_AT_ONCE = 8
MOST_OF_ONE = 2  # of one user at once, with those that were given up and do not answer still
THREADS = 4 * MOST_AT_ONCE
MAX_REMEMBERED = 1000

log = logging.getLogger("perdure")

Read = Callable[[Attempt], Output]


class FairQueue:
    """Attempts that wait, and whose is next: that of the user who was served least, counted from when they came."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Attempt]] = {}
        self._served: dict[str, float] = {}
        self._least = 0.0  # what the user who was last chosen had had: who comes has had as much

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, attempt: Attempt) -> None:
        user = attempt.user
        if user not in self._waiting:
            self._waiting[user] = deque()
            self._served[user] = max(self.served(user), self._least)
        self._waiting[user].append(attempt)

    def take(self, may: Callable[[str], bool]) -> Attempt | None:
        """The next attempt of a user who may have one."""
        user = min(filter(may, self._waiting), key=self.served, default=None)
        if user is None:
            return None
        self._least = max(self._least, self.served(user))
        attempt = self._waiting[user].popleft()
        if not self._waiting[user]:
            del self._waiting[user]
        return attempt

    def served(self, user: str) -> float:
        return self._served.get(user, 0.0)

    def charge(self, user: str, seconds: float) -> None:
        self._served[user] = max(self.served(user), self._least) + seconds
        if len(self._served) > MAX_REMEMBERED:
            self._served = {u: s for u, s in self._served.items() if s > self._least or u in self._waiting}


class LogQueue:
    """Reads what is put into it. Safe to share between threads, of which one takes."""

    def __init__(self, read: Read) -> None:
        self.pool: Executor = ThreadPoolExecutor(THREADS, thread_name_prefix="log")
        self._read = read
        self._changed = threading.Condition()
        self._turns = FairQueue()
        self._reading: dict[Future[Output], tuple[Attempt, float]] = {}  # with the instant at which it is given up
        self._given_up: dict[Future[Output], str] = {}  # whose they are

    def put(self, attempt: Attempt) -> None:
        with self._changed:
            self._turns.put(attempt)
            self._changed.notify()

    def next(self, timeout_s: float) -> tuple[Attempt, Output] | None:
        """An attempt with what could be read of it; None where none is put in within `timeout_s`."""
        end_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                self._begin()
                now = time.monotonic()
                if found := self._hopeless() or self._ready(now):
                    return found
                if not self._reading and now >= end_s:
                    return None
                until_s = min((until_s for _, until_s in self._reading.values()), default=end_s)
                self._changed.wait(until_s - now)

    def charge(self, user: str, seconds: float) -> None:
        """What it cost to judge an attempt of that user."""
        with self._changed:
            self._turns.charge(user, seconds)

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        if not self._turns:
            return
        busy = Counter(attempt.user for attempt, _ in self._reading.values())
        busy.update(self._given_up.values())
        while len(self._reading) < MOST_AT_ONCE:
            attempt = self._turns.take(lambda user: busy[user] < MOST_OF_ONE)
            if attempt is None:
                return
            busy[attempt.user] += 1
            reading = self.pool.submit(self._read, attempt)
            self._reading[reading] = (attempt, time.monotonic() + PATIENCE_S)
            reading.add_done_callback(self._ended)

    def _ended(self, reading: Future[Output]) -> None:
        with self._changed:
            self._given_up.pop(reading, None)
            self._changed.notify()

    def _hopeless(self) -> tuple[Attempt, Output] | None:
        """One of a user whose other logs do not answer: its log is not waited for, too."""
        if not self._given_up:
            return None
        silent = Counter(self._given_up.values())
        attempt = self._turns.take(lambda user: silent[user] >= MOST_OF_ONE)
        return (attempt, _nothing(attempt, "other logs of its user do not answer")) if attempt else None

    def _ready(self, now: float) -> tuple[Attempt, Output] | None:
        """What has been read, or is waited for no longer; of several the user's who was served least."""
        ready = [each for each, (_, until_s) in self._reading.items() if each.done() or now >= until_s]
        if not ready:
            return None
        reading = min(ready, key=lambda each: self._turns.served(self._reading[each][0].user))
        attempt, _ = self._reading.pop(reading)
        if reading.done():
            return attempt, _output_of(reading, attempt)
        if not reading.cancel():
            self._given_up[reading] = attempt.user
        return attempt, _nothing(attempt, f"its log could not be read within {PATIENCE_S:.0f} s")


def _output_of(reading: Future[Output], attempt: Attempt) -> Output:
    try:
        return reading.result()
    except PerdureError as err:
        return _nothing(attempt, f"its log could not be read: {err.what}")
    except Exception as err:  # whatever it is, the failure is not left without an answer
        return _nothing(attempt, f"its log could not be read: {err!r}")


def _nothing(attempt: Attempt, why: str) -> Output:
    """Without files, the scheduler's own facts must do."""
    log.warning("%s: %s", attempt.id, why)
    return Output((), (Absent(attempt.stdout, Why.UNKNOWN, why),))
