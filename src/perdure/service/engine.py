"""The engine: one controller with its hands.

Whoever has an event takes the lock, runs the pure `step` and has its effects journalled in one transaction before
anything else happens (`Engine.absorb`). It holds nothing that the journal does not: killed at any point, the journal
tells the next run what was asked and not answered.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import replace

from perdure.backends.protocol import TAIL_BYTES, Backend, LogTail
from perdure.errors import PerdureError
from perdure.model.jobs import Attempt
from perdure.service.case import State
from perdure.service.controller import (
    Act,
    ControllerSettings,
    Effect,
    Event,
    Judge,
    Judged,
    Looked,
    step,
    unfinished,
)
from perdure.service.executor import Executor
from perdure.service.journal import Journal
from perdure.service.surroundings import context_of
from perdure.triage.context import Context
from perdure.triage.verdict import Label, Verdict

log = logging.getLogger("perdure")

Triage = Callable[[bytes, Attempt, Context], Verdict]

LOOK_BACK_S = 600.0  # accounting may tell of an end this much later
LOG_PATIENCE_S = 20.0  # a log that cannot be read in this time is judged without
MAX_STUCK_READS = 8


class Engine:
    """The controller with its hands: everything the threads call, and nothing that knows of threads."""

    def __init__(
        self,
        backend: Backend,
        journal: Journal,
        executor: Executor,
        triage: Triage,
        settings: ControllerSettings,
        clock: Callable[[], float],
        decided: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`decided` is told the seconds from a log at hand to the decision in the journal."""
        self.backend = backend
        self.journal = journal
        self.executor = executor
        self._triage = triage
        self.clock = clock
        self._decided = decided
        self._lock = threading.Lock()  # of the state and the journal's order
        self._backend_lock = threading.Lock()  # a backend is asked one thing at a time
        self._state: State = journal.restore()
        self._to_judge: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(MAX_STUCK_READS, thread_name_prefix="log")
        self.acts_wait = threading.Event()  # set while there may be an action to carry out
        self.look_now = threading.Event()  # set where something is known to have happened
        self.last_look_s: float | None = None
        last_s = journal.last_event_s()
        self._seen_until_s = clock() if last_s is None else last_s
        # What failed before we came is not ours. Slurm tells instants in whole seconds.
        ours_since_s = math.floor(self._seen_until_s) if last_s is None else last_s - LOOK_BACK_S
        self._settings = replace(settings, ignore_before_s=ours_since_s)
        self._after(unfinished(self._state))

    @property
    def state(self) -> State:
        return self._state

    def absorb(self, events: Iterable[Event]) -> None:
        """Take in events: decide, journal in one transaction, then hand on what is to be done."""
        with self._lock:
            before = after = self._state
            effects: list[Effect] = []
            for event in events:
                after, more = step(after, event, self._settings)
                effects += more
            if effects or after is not before:
                self.journal.record(effects, before, after)
            self._state = after
        self._after(effects)

    def _after(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Judge(attempt=attempt):
                    self._to_judge.put(attempt)
                case Act():
                    self.acts_wait.set()
                case _:
                    pass

    def look(self) -> None:
        """Look at the cluster once."""
        self.look_now.clear()
        with self._backend_lock:
            seen = self.backend.observe(self._seen_until_s - LOOK_BACK_S)
        if not seen.unseen:
            self._seen_until_s = seen.time_s
        self.absorb([Looked(seen)])
        self.last_look_s = seen.time_s

    def judge_next(self, timeout_s: float) -> bool:
        """Judge one failed attempt, if there is one within `timeout_s`."""
        try:
            attempt = self._to_judge.get(timeout=timeout_s)
        except queue.Empty:
            return False
        tail, begun_s = self._log_of(attempt), time.monotonic()
        try:
            self.absorb([Judged(self.clock(), attempt.id, self._judge(attempt, tail))])
        except BaseException:  # a full disk, say: the failure must not be left without an answer
            self._to_judge.put(attempt)
            raise
        self._decided(time.monotonic() - begun_s)
        return True

    def _judge(self, attempt: Attempt, log_tail: LogTail) -> Verdict:
        """A log that triage stumbles over must not leave the failure without an answer."""
        text = log_tail.head + b"\n" + log_tail.tail if log_tail.head else log_tail.tail
        state = self._state
        case = state.cases.get(attempt.id.job_id)
        try:
            context = context_of(attempt, case, state.fleet, log_tail.free_bytes, self.clock())
            return self._triage(text, attempt, context)
        except Exception:
            log.exception("%s: triage failed", attempt.id)
            return Verdict(Label.UNSURE, 0.5, "unknown", "triage itself failed on this log")

    def _log_of(self, attempt: Attempt) -> LogTail:
        """The log to judge by; empty where it cannot be had, for then the scheduler's own facts must do."""
        reading = self._readers.submit(self.backend.log_tail, attempt, TAIL_BYTES)
        try:
            return reading.result(LOG_PATIENCE_S)
        except NotInTime:
            reading.cancel()
            log.warning("%s: its log could not be read within %.0f s", attempt.id, LOG_PATIENCE_S)
        except PerdureError as err:
            log.info("%s: judged without a log: %s", attempt.id, err)
        return LogTail("", b"")

    def act(self) -> None:
        """Carry out what is due."""
        with self._backend_lock:
            ended = self.executor.run_due(self.clock())
        if ended:
            self.absorb(ended)
            self.look_now.set()

    def recover(self) -> None:
        """Find out what became of every action that was begun before the service last died."""
        with self._backend_lock:
            ended = self.executor.recover(self.clock())
        if ended:
            self.absorb(ended)

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        self.journal.close()
        self.backend.close()
