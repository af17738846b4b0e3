"""The threads around the engine: each runs one of its turns again and again until the service ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from perdure.errors import PerdureError
from perdure.service.engine import Engine

log = logging.getLogger("perdure")

ACT_EVERY_S = 0.25  # the kill switch and new intents are heeded this soon
TICK_EVERY_S = 0.5  # leases and deadlines of exceptions are heeded this soon
ENDING_S = 5.0  # a thread that has not ended after this long is left to the end of the process
PRUNE_EVERY_S = 60.0
PRUNE_LOGS_EVERY_S = 600.0


Turn = Callable[[], object]


def forever(name: str, stop: threading.Event, turn: Turn, pause: Turn) -> threading.Thread:
    """Run `turn` and `pause` in a thread until `stop`; an error is logged, and the next turn is tried."""

    def loop() -> None:
        while not stop.is_set():
            try:
                turn()
            except PerdureError as err:
                log.warning("%s: %s", name, err)
            except Exception:
                log.exception("%s: unexpected; going on", name)
            pause()

    return threading.Thread(target=loop, name=name, daemon=True)


def threads(engine: Engine, stop: threading.Event, look_every_s: float) -> list[threading.Thread]:
    """The hands of the engine: eyes, judgement, deeds, and a broom."""

    def rest() -> None:
        engine.acts_wait.wait(ACT_EVERY_S)
        engine.acts_wait.clear()

    def prune() -> None:
        while engine.journal.prune(engine.clock()) and not stop.is_set():
            pass

    def prune_logs() -> None:
        if engine.kept is not None:
            engine.kept.prune(engine.clock())

    return [
        forever("look", stop, engine.look, lambda: engine.look_now.wait(look_every_s)),
        forever("judge", stop, lambda: engine.judge_next(0.5), lambda: None),
        forever("chain", stop, engine.tick, lambda: stop.wait(TICK_EVERY_S)),
        forever("act", stop, engine.act, rest),
        forever("prune", stop, prune, lambda: stop.wait(PRUNE_EVERY_S)),
        forever("prune-logs", stop, prune_logs, lambda: stop.wait(PRUNE_LOGS_EVERY_S)),
    ]


def end(hands: list[threading.Thread], stop: threading.Event, engine: Engine) -> None:
    """Let every thread finish what it is at, and begin nothing more."""
    stop.set()
    engine.acts_wait.set()
    engine.look_now.set()
    for thread in hands:
        thread.join(ENDING_S)
