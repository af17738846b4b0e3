"""The threads around the engine: each runs one of its turns again and again until the service ends."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from perdure.backends.kind import NO_LIMIT, CallBudget
from perdure.errors import PerdureError, StateError, TakenOver
from perdure.log import Repeats
from perdure.service.core.call_budget import CallMeter
from perdure.service.workers.comment_writer import COMMENTS_EVERY_S
from perdure.service.workers.engine import Engine

log = logging.getLogger("perdure")

ACT_EVERY_S = 0.25  # the kill switch and new intents take effect within this time
TICK_EVERY_S = 0.5  # leases and deadlines of exceptions take effect within this time
ENDING_S = 5.0  # a thread that has not ended after this long is left to the end of the process
PRUNE_EVERY_S = 60.0
PRUNE_LOGS_EVERY_S = 600.0
BURST = 3  # rounds of actions that follow each other at once
LOOK_SHARE = 2.0  # the pause after a look is at least this many times as long as the look, where looks have a budget


Turn = Callable[[], object]


def forever(name: str, stop: threading.Event, turn: Turn, pause: Turn) -> threading.Thread:
    """Run `turn` and `pause` in a thread until `stop`; an error is logged, and the next turn is tried.

    After an error of the journal a turn that had nothing to write proves nothing: the journal tells its own recovery.
    Where another service has taken the cluster over, this process ends: what it remembers is old.
    """

    repeats = Repeats()

    def loop() -> None:
        tells_recovery = True
        while not stop.is_set():
            try:
                turn()
                if repeats.ended(name) and tells_recovery:
                    log.warning("%s: works again", name)
            except TakenOver as err:
                if not stop.is_set():
                    log.error("%s: this service ends", err)
                    stop.set()
                    os.kill(os.getpid(), signal.SIGTERM)
            except PerdureError as err:
                tells_recovery = not isinstance(err, StateError)
                if repeats.is_news(name, str(err), time.monotonic()):
                    log.warning("%s: %s", name, err)
            except Exception as err:
                tells_recovery = True
                if repeats.is_news(name, repr(err), time.monotonic()):
                    log.exception("%s: unexpected; going on", name)
            pause()

    return threading.Thread(target=loop, name=name, daemon=True)


def threads(
    engine: Engine, stop: threading.Event, look_every_s: float, pace: CallBudget = NO_LIMIT, keep_days: float = 30.0
) -> list[threading.Thread]:
    """The threads of the engine: they look, judge, act, comment, let time pass, and remove what is old."""
    rounds = CallMeter.per_minute(pace.rounds, BURST)

    def act() -> None:
        now = time.monotonic()
        has_looked = engine.last_look_s is not None  # before, the journal tells how jobs stood when the last run ended
        if has_looked and rounds.wait_s(now) == 0 and engine.act():
            rounds.take(now)

    def rest() -> None:
        engine.acts_wait.wait(ACT_EVERY_S)
        engine.acts_wait.clear()
        stop.wait(rounds.wait_s(time.monotonic()))

    def prune() -> None:
        while engine.journal.prune(engine.clock(), keep_days) and not stop.is_set():
            pass

    def prune_logs() -> None:
        if engine.kept is not None:
            engine.kept.prune(engine.clock())

    look, wait = _looking(engine, stop, look_every_s, CallMeter.per_minute(pace.looks))
    return [
        forever("look", stop, look, wait),
        forever("judge", stop, lambda: engine.judge_next(0.5), lambda: None),
        forever("chain", stop, engine.tick, lambda: stop.wait(TICK_EVERY_S)),
        forever("act", stop, act, rest),
        forever("comment", stop, engine.write_comments, lambda: stop.wait(COMMENTS_EVERY_S)),
        forever("prune", stop, prune, lambda: stop.wait(PRUNE_EVERY_S)),
        forever("prune-logs", stop, prune_logs, lambda: stop.wait(PRUNE_LOGS_EVERY_S)),
    ]


def _looking(engine: Engine, stop: threading.Event, every_s: float, looks: CallMeter) -> tuple[Turn, Turn]:
    """A look, and the wait for the next one: until it is due, or there is reason to, and the budget allows it.

    A look that takes long is one that costs the resource manager much: then looks are rarer.
    """

    def look() -> None:
        looks.take(time.monotonic())
        engine.look()

    def wait() -> None:
        ended_s = time.monotonic()
        engine.look_now.wait(every_s)
        now = time.monotonic()
        least_s = ended_s + LOOK_SHARE * engine.look_took_s if looks.bucket else now
        stop.wait(max(looks.wait_s(now), least_s - now, 0.0))

    return look, wait


def after_a_look(engine: Engine, stop: threading.Event, least_s: float) -> Turn:
    """A pause until there is a new look, of `least_s` at least: what comes next then goes by a fresh one."""

    def wait() -> None:
        stop.wait(least_s)
        engine.has_looked.wait()
        engine.has_looked.clear()

    return wait


def end(hands: list[threading.Thread], stop: threading.Event, engine: Engine) -> None:
    """Stop all threads: each finishes its work in progress and begins nothing more."""
    stop.set()
    engine.acts_wait.set()
    engine.look_now.set()
    engine.has_looked.set()
    for thread in hands:
        thread.join(ENDING_S)
