"""One life of the service: the real engine, journal and executor, in a process that dies at a chosen point."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import event

from perdure.errors import ClusterBusy, PerdureError
from perdure.model.actions import (
    Action,
    Outcome,
    OutcomeStatus,
)
from perdure.model.events import ActionEnded
from perdure.service.access.auth import Identity, Role
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import unfinished
from perdure.service.core.messages import Effect
from perdure.service.core.settings import Caps, ControllerSettings
from perdure.service.exceptions.coordinator import Answering, Coordinator, Enlisting
from perdure.service.store.journal import ActionRow, ActionState, Journal
from perdure.service.workers.engine import Engine
from perdure.service.workers.executor import Executor, ExecutorSettings
from perdure.triage.judge import judge
from tests.copying import replace
from tests.crash.remote import RemoteBackend
from tests.crash.world import CLUSTER
from tests.dst.service import RULES

TICK_S = 5.0
PROGRAM, ROOT = "desk", Identity("root", Role.OPERATOR)
QUIET_LOOKS = 12  # longer than an attempt may be missing before it counts as ended
MANY = 1_000_000

SETTINGS = ControllerSettings(  # budgets out of the way: what is due is due
    retry=RULES,
    action_ttl_s=1e9,
    vanish_grace_s=30.0,
)
Ended = TypeVar("Ended")
CAPS = Caps(actions_per_hour=MANY, floor_per_hour=MANY)

CALLS = ("record", "begin", "finish", "hand_back", "perform", "lookup")
POINTS = (*(f"{call}:{when}" for call in CALLS for when in ("before", "after")), "sent", "statement", "commit")


@dataclass(slots=True)
class Fuse:
    """Kills the process the `left`-th time that `point` is passed."""

    point: str = ""
    left: int = 0

    def passed(self, point: str) -> None:
        if point != self.point:
            return
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FragileBackend(RemoteBackend):
    """Passes points around each order, and between its sending and its answer."""

    fuse = Fuse()

    def perform(self, action: Action) -> Outcome:
        return _between(self.fuse, "perform", lambda: super(FragileBackend, self).perform(action))

    def lookup(self, action: Action) -> Outcome | None:
        return _between(self.fuse, "lookup", lambda: super(FragileBackend, self).lookup(action))

    def _reply(self) -> Any:
        self.fuse.passed("sent")
        return super()._reply()


class FragileJournal(Journal):
    """Passes points around each write."""

    fuse = Fuse()

    def record(
        self,
        effects: Iterable[Effect],
        before: ControllerState,
        after: ControllerState,
    ) -> None:
        return _between(self.fuse, "record", lambda: super(FragileJournal, self).record(effects, before, after))

    def begin(self, key: str, now: float) -> bool:
        return _between(self.fuse, "begin", lambda: super(FragileJournal, self).begin(key, now))

    def finish(self, row: ActionRow, state: ActionState, detail: str, now: float) -> ActionEnded | None:
        return _between(self.fuse, "finish", lambda: super(FragileJournal, self).finish(row, state, detail, now))

    def hand_back(self, key: str, detail: str) -> bool:
        return _between(self.fuse, "hand_back", lambda: super(FragileJournal, self).hand_back(key, detail))


def _between(fuse: Fuse, name: str, call: Callable[[], Ended]) -> Ended:
    fuse.passed(f"{name}:before")
    result = call()
    fuse.passed(f"{name}:after")
    return result


# -- services that must be caught


class NoIntent(FragileJournal):
    """Writes nothing down before it acts."""

    def begin(self, key: str, now: float) -> bool:
        return True

    def finish(self, row: ActionRow, state: ActionState, detail: str, now: float) -> ActionEnded | None:
        return super().finish(replace(row, state=ActionState.PLANNED), state, detail, now)


class Hasty(FragileJournal):
    """Says that it has written, and writes some time later."""

    def record(
        self,
        effects: Iterable[Effect],
        before: ControllerState,
        after: ControllerState,
    ) -> None:
        self.late = [*getattr(self, "late", ()), (list(effects), before, after)]
        if len(self.late) > 9:
            for one in self.late:
                super().record(*one)
            self.late = []


class Deaf(FragileBackend):
    """Takes silence for a no."""

    def lookup(self, action: Action) -> None:
        return None


class Trusting(FragileBackend):
    """Takes silence for a yes."""

    def perform(self, action: Action) -> Outcome:
        try:
            return super().perform(action)
        except ClusterBusy:
            return Outcome(OutcomeStatus.DONE, "surely")

    def lookup(self, action: Action) -> Outcome:
        return Outcome(OutcomeStatus.DONE, "surely")


MUTANTS: dict[str, tuple[type[FragileJournal], type[FragileBackend]]] = {
    "none": (FragileJournal, FragileBackend),
    "no-intent": (NoIntent, FragileBackend),
    "hasty": (Hasty, FragileBackend),
    "deaf": (FragileJournal, Deaf),
    "trusting": (FragileJournal, Trusting),
}


class Life:
    """The service, run as its threads run it, one thing after another."""

    def __init__(self, directory: Path, socket_path: Path, mutant: str = "none", fuse: Fuse | None = None) -> None:
        journal_kind, backend_kind = MUTANTS[mutant]
        self.backend = backend_kind(socket_path, CLUSTER)
        self.backend.fuse = fuse = fuse or Fuse()
        self.now = self.backend.ask("advance", 0.0)
        self.journal = journal_kind.open(directory, CLUSTER)
        self.journal.fuse = fuse
        _listen(self.journal, fuse)
        executor = Executor(self.journal, self.backend, ExecutorSettings(True, directory / "STOP", CAPS))
        self.engine = Engine(self.backend, self.journal, executor, judge, SETTINGS, lambda: self.now)
        tell, view, look = self.engine.tell, self.engine.view, self.engine.look_now.set
        self.coordinator = Coordinator(tell, view, self.journal.recall, look)
        self.engine.recover()

    def turn(self, seconds: float = TICK_S) -> None:
        self.now = self.backend.ask("advance", seconds)
        self.engine.look()
        while self.engine.judge_next(0.0):
            pass
        self.engine.tick()
        self.engine.act()

    def run(self) -> None:
        """Live until killed."""
        while True:
            self.turn()
            self.talk()

    def talk(self) -> None:
        """A program registers, raises exceptions and answers those that it is asked about.

        What the service acknowledges is told to the world at once, which outlives both.
        """
        number = self.backend.ask("number")
        told = self.coordinator
        lease = told.enlist(PROGRAM, Enlisting("workflow", ("site",), lease_s=3600.0, answer_s=600.0), ROOT)
        self._acknowledged("registered until", repr(lease.until_s))
        about = {"resource": f"r{number // 2}"}  # each fault is raised twice
        value = {"id": f"x{number}", "type": "site.news", "severity": 5, "subject": about}
        (became,) = told.raise_exceptions([value], ROOT)
        if isinstance(became, PerdureError):
            raise became
        self._acknowledged("raised", became.id)
        for exception_id, turn in list(told.chain().turns.items()):
            if turn.handler == PROGRAM:
                told.answer(exception_id, PROGRAM, Answering("handled", f"by life of {number}"), ROOT)
                self._acknowledged("answered", exception_id)

    def _acknowledged(self, what: str, name: str) -> None:
        self.backend.ask("acknowledged", [what, name])

    def run_until_quiet(self, patience: int = 4000) -> None:
        """Let the world calm down, and live until nothing is left to be done, or patience is used up."""
        self.backend.ask("calm_down")
        quiet = 0
        for _ in range(patience):
            self.turn(TICK_S)
            quiet = quiet + 1 if self._nothing_left() else 0
            if quiet > QUIET_LOOKS:
                return

    def _nothing_left(self) -> bool:
        left = self.journal.planned() or self.journal.open_intents() or unfinished(self.engine.state)
        return not left and bool(self.backend.ask("idle"))

    def close(self) -> None:
        self.engine.close()


def _listen(journal: Journal, fuse: Fuse) -> None:
    writers = journal._store._writers
    event.listen(writers, "after_cursor_execute", lambda *_: fuse.passed("statement"))
    event.listen(writers, "commit", lambda *_: fuse.passed("commit"))
