"""Where comparisons are worked off: taken in, one after another, each in a process of its own."""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from perdure.errors import ClusterError, InputError, NotFound, PerdureError, TooMany
from perdure.scheduling.las import QUEUE_LIMITS
from perdure.scheduling.live_limits import LiveLimits
from perdure.service.access.auth import Identity, Role
from perdure.service.whatif.comparison import (
    HISTORY,
    RATES,
    TRACE,
    Comparison,
    ComparisonRequest,
    Progress,
    Stage,
    Summary,
    Trouble,
)
from perdure.service.whatif.comparison_store import SUMMARY, ComparisonStore
from perdure.service.whatif.process import Halted, carry_out
from perdure.service.whatif.question import ComparisonQuestion, check, needs_profiles
from perdure.service.whatif.settings import MIB, WhatifSettings
from perdure.service.whatif.uploads import Uploads

log = logging.getLogger("perdure")


class ComparisonQueue:
    """All that the web asks of the simulator. Safe to use from many threads."""

    def __init__(
        self,
        home: Path,
        database: str,
        cluster: str,
        settings: WhatifSettings,
        clock: Callable[[], float],
        limits: LiveLimits | None = None,
        queue_limits: tuple[float, ...] = QUEUE_LIMITS,
    ) -> None:
        """`database` and `cluster` say where the site's own history is; that is replayed within `limits`, under which a
        policy is in force here. Leftovers of an earlier run are cleared.
        """
        self.settings = settings
        self._work = home / "work"
        self._database = database
        self._cluster = cluster
        self._clock, self._limits, self._queue_limits = clock, limits, queue_limits
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(mode=0o700, parents=True)
        self.store = ComparisonStore(home / "kept", settings.keep, clock())
        self.uploads = Uploads(home / "uploads", settings.upload_mib * MIB, clock)
        self._lock = threading.RLock()
        self._come = threading.Condition(self._lock)
        self._waiting: deque[str] = deque()
        self._progress: dict[str, Progress] = {}
        self._to_end: set[str] = set()
        self.stop = threading.Event()

    # -- for the routes

    def ask(self, ask: ComparisonQuestion, identity: Identity) -> Comparison:
        """Take a comparison in. Raises `InputError`, `NotFound` for an upload, `TooMany` and `StateError`."""
        check(ask)
        if needs_profiles(ask) and self.settings.profiles is None:
            what = f"{ask.policies[0]} plans with measured profiles, of which this service has none"
            fix = "Let whatif.profiles name a folder of them, or use perdure whatif elastic"
            raise InputError("policies", what, fix)
        with self._lock:
            self._check_room(identity)
            asked = Comparison(secrets.token_hex(8), identity.user, HISTORY, ask, Stage.WAITING, self._clock())
            folder = self._work / asked.id
            folder.mkdir(mode=0o700)
            try:
                if ask.upload is not None:
                    asked = replace(asked, source=self.uploads.claim(ask.upload, identity.user, folder / TRACE))
                if ask.rates is not None:
                    self.uploads.claim(ask.rates, identity.user, folder / RATES)
                self.store.put(asked)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self._waiting.append(asked.id)
            self._come.notify()
        return asked

    def visible_to(self, identity: Identity) -> tuple[Comparison, ...]:
        """The latest first."""
        return tuple(each for each in self.store.all() if each.is_visible_to(identity))

    def find(self, comparison_id: str, identity: Identity) -> Comparison:
        """Raises `NotFound`, also for another user's: that there is one is not said."""
        found = self.store.find(comparison_id)
        if not found.is_visible_to(identity):
            raise NotFound("comparison", "no such one is known", "See those there are on the page /whatif")
        return found

    def progress(self, comparison_id: str) -> Progress | None:
        """How far it has come; None for one that does not run."""
        with self._lock:
            return self._progress.get(comparison_id)

    def ahead_of(self, comparison_id: str) -> int:
        """How many are to be done before this one, the one that runs among them."""
        with self._lock:
            waits = comparison_id in self._waiting
            return self._waiting.index(comparison_id) + len(self._progress) if waits else 0

    def summary(self, comparison: Comparison) -> Summary | None:
        """The answer in short; None before there is one, or where it was lost in a power cut."""
        if comparison.stage is not Stage.DONE:
            return None
        try:
            return Summary.model_validate_json(self.store.answer(comparison.id, SUMMARY))
        except (NotFound, ValidationError):
            return None

    def cancel(self, comparison_id: str, identity: Identity) -> None:
        """End one that waits or runs. Raises `NotFound`, and `ClusterError` for one that is over."""
        found = self.find(comparison_id, identity)
        with self._lock:
            if comparison_id in self._waiting:
                self._waiting.remove(comparison_id)
                self._end(found, Stage.CANCELLED)
            elif comparison_id in self._progress:
                self._to_end.add(comparison_id)
            else:
                raise ClusterError("comparison", "it is over already", "Remove it instead")

    def remove(self, comparison_id: str, identity: Identity) -> None:
        """Forget one that is over, with its answers. Raises `NotFound`, and `ClusterError` for one that is not over."""
        if not self.find(comparison_id, identity).stage.is_over:
            raise ClusterError("comparison", "it is not over yet", "Cancel it first")
        self.store.remove(comparison_id)

    def _check_room(self, identity: Identity) -> None:
        """Viewers have one at a time, so that none of them can fill the queue."""
        if len(self._waiting) >= self.settings.queue:
            raise TooMany("whatif", f"{len(self._waiting)} wait already", "Try again once one is done")
        unfinished = [each for each in self.visible_to(identity) if not each.stage.is_over]
        if unfinished and identity.role is Role.VIEWER:
            raise TooMany("whatif", "one of yours is not done yet", "Wait for it, or cancel it")

    # -- for the thread

    def work_next(self, timeout_s: float) -> bool:
        """Work off one comparison, if one comes within `timeout_s`; traces that nobody has used for long go."""
        self.uploads.forget_old()
        with self._come:
            if not self._waiting and not self._come.wait(timeout_s):
                return False
            if self.stop.is_set() or not self._waiting:
                return False
            comparison_id = self._waiting.popleft()
            self._progress[comparison_id] = Progress(phase="reading")
        begun = replace(self.store.find(comparison_id), stage=Stage.RUNNING, started_s=self._clock())
        try:
            self.store.put(begun)
            stage, trouble = self._carried_out(begun)
        except PerdureError as err:
            stage, trouble = Stage.FAILED, Trouble.of(err)
        except Exception as err:
            log.exception("what-if %s: unexpected", comparison_id)
            stage, trouble = Stage.FAILED, _unexpected(err)
        with self._lock:
            del self._progress[comparison_id]
            self._to_end.discard(comparison_id)
            if stage is not Stage.BROKEN_OFF:  # that is for the next start to say, as after a crash
                self._end(begun, stage, trouble)
        return True

    def _carried_out(self, asked: Comparison) -> tuple[Stage, Trouble | None]:
        settings, folder = self.settings, self._work / asked.id
        order = ComparisonRequest(
            asked.ask,
            self._database,
            self._cluster,
            settings.unpacked_mib * MIB,
            settings.memory_mib * MIB,
            settings.time_limit_s,
            settings.nice,
            None if settings.profiles is None else str(settings.profiles.absolute()),
            *((self._limits, self._queue_limits) if asked.ask.upload is None else ()),
        )

        def tell(progress: Progress) -> None:
            with self._lock:
                self._progress[asked.id] = progress

        def halt() -> bool:
            return self.stop.is_set() or asked.id in self._to_end

        try:
            trouble = carry_out(order, folder, tell, halt)
        except Halted:
            return Stage.BROKEN_OFF if self.stop.is_set() else Stage.CANCELLED, None
        if trouble is not None:
            return Stage.FAILED, trouble
        self.store.take_answers(asked.id, folder)
        return Stage.DONE, None

    def _end(self, comparison: Comparison, stage: Stage, trouble: Trouble | None = None) -> None:
        shutil.rmtree(self._work / comparison.id, ignore_errors=True)
        self.store.put(replace(comparison, stage=stage, ended_s=self._clock(), trouble=trouble))


def _unexpected(err: Exception) -> Trouble:
    return Trouble(
        where="service", what=f"it could not be done ({type(err).__name__})", fix="See the service's own log"
    )
