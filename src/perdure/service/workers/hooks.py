"""What a cluster's hooks report: reasons to look, news of nodes, and epilogs that wait for a decision."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from perdure.backends.protocol import Hooked
from perdure.coordination.bridges.registry import read as read_bridged
from perdure.coordination.messages import ExceptionRaised
from perdure.coordination.record import ExceptionRecord
from perdure.errors import PerdureError
from perdure.log import Repeats
from perdure.service.core.call_budget import CallMeter
from perdure.service.core.messages import PERDURE
from perdure.service.workers.engine import Engine

log = logging.getLogger("perdure")

LISTEN_EVERY_S = 0.04  # one `stat` of the spool each time
LOOKS_AT_ONCE = 5  # at failed attempts, before they have to wait for each other
EARLY_LOOK = "a look at failed attempts before their epilogs end"
ALIVE_EVERY_S = 1.0  # the spool is read this often, whatever its time stamp says


class Hooks:
    """Listens to the spool; one turn every `LISTEN_EVERY_S`, from one thread.

    An epilog is answered once nothing is left to be done about its attempt: a decision was made and carried out. It is
    answered at once where nothing is carried out, while the kill switch is on, and where nothing failed.
    """

    def __init__(
        self,
        backend: Hooked,
        engine: Engine,
        clock: Callable[[], float] = time.time,
        looks_per_minute: float | None = None,
    ) -> None:
        self._backend, self._engine, self._clock = backend, engine, clock
        self._changed_ns, self._alive_s = 0, 0.0
        self._looks = CallMeter.per_minute(looks_per_minute, LOOKS_AT_ONCE)
        self._repeats = Repeats()
        self._seen: dict[str, Any] = {}  # those that wait and were looked at, by job

    def turn(self) -> None:
        """Handle what was dropped since the last turn."""
        spool = self._backend.spool
        if spool is None:
            return
        now, changed_ns = self._clock(), spool.changed_ns()
        is_due = not 0 <= now - self._alive_s < ALIVE_EVERY_S
        if is_due:
            self._alive_s = now
            self._tell_alive(spool, now)
        if is_due or changed_ns != self._changed_ns:
            self._changed_ns = changed_ns
            self._listen(now)
        waiting = self._backend.waiting()  # a look may have taken a question from the spool before this thread
        unseen = tuple(one for job_id, one in waiting.items() if self._seen.get(job_id) != one)
        if unseen and self._looks.wait_s(time.monotonic()) == 0:
            self._looks.take(time.monotonic())
            if self._look_at(unseen):
                self._seen = waiting
        self._answer()

    def close(self) -> None:
        """Release all epilogs, and let none wait from now on."""
        if (spool := self._backend.spool) is not None:
            spool.remove_alive()
            for job_id in self._backend.waiting():
                self._backend.answer(job_id)

    def _tell_alive(self, spool: Any, now: float) -> None:
        if self._engine.executor.acts:
            spool.write_alive(now)
        else:
            spool.remove_alive()
        spool.remove_stale_answers(now)

    def _listen(self, now: float) -> None:
        taken = self._backend.listen()
        if taken.ends or taken.looks:
            self._engine.look_now.set()
        for notice in self._backend.notices():
            said = read_bridged(self._backend.bridge, notice, self._backend.cluster, now)
            refused = self._engine.tell(
                tuple(ExceptionRaised(_own(record, self._backend.cluster)) for record in said.records)
            )
            for effect in refused:
                log.warning("a hook's word is not taken: %s. %s", effect.what, effect.fix)

    def _look_at(self, questions: tuple[Any, ...]) -> bool:
        """Look at attempts. False: nothing is known of them yet."""
        try:
            self._engine.look_at(lambda: self._backend.look_at(questions))
        except PerdureError as err:
            if self._repeats.is_news(EARLY_LOOK, str(err), self._clock()):
                log.warning("%s: no answer: %s", EARLY_LOOK, err)
            return False
        if self._repeats.ended(EARLY_LOOK):
            log.warning("%s: works again", EARLY_LOOK)
        return True

    def _answer(self) -> None:
        waiting = self._backend.waiting()
        if not waiting:
            return
        acts, undecided = self._engine.executor.acts, self._engine.undecided()
        for job_id, question in waiting.items():
            if not acts or (self._seen.get(job_id) == question and job_id not in undecided):
                self._backend.answer(job_id)


def _own(record: ExceptionRecord, cluster: str) -> ExceptionRecord:
    """What the site's own hooks say is the service's word, under a name that nobody outside can take."""
    return replace(record, id=f"{cluster}:{record.id}", detected_by=PERDURE)
