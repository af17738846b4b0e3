"""The watch: every few minutes, who the last hour's attempts accuse."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from perdure.blame.accuse import accused_by
from perdure.blame.sliding import Sliding
from perdure.blame.standing import Standing, SuspectPatience, WindowChange, follow
from perdure.coordination.messages import ExceptionRaised, Input, Settled
from perdure.coordination.record import ExceptionOutcome
from perdure.service.blame.announce import in_words, suspect_to_exception
from perdure.service.blame.settings import BlameSettings
from perdure.service.blame.suspect_store import SuspectStore

log = logging.getLogger("perdure")

LATE_S = 900.0
"""An attempt may be judged, and hence be read, this long after its end."""


class Watch:
    """Keeps the window and the suspects; `turn` moves both on. Who was named is read back after a restart."""

    def __init__(
        self,
        store: SuspectStore,
        settings: BlameSettings,
        clock: Callable[[], float],
        tell: Callable[[list[Input]], None],
    ) -> None:
        """`tell` takes what the coordination chain is to hear: suspects that are named, and that are cleared."""
        self._store = store
        self._settings = settings
        self._clock = clock
        self._tell = tell
        self._sliding = Sliding(settings.window_s)
        self._patience = SuspectPatience(settings.confirm, settings.release)
        self._standing: tuple[Standing, ...] = store.standing()
        self._read_until_s = 0.0

    def turn(self) -> tuple[Standing, ...]:
        """Look once; who is named after it."""
        now, length_s = self._clock(), self._settings.window_s
        since_s = max(now - length_s, self._read_until_s - LATE_S)
        rows = self._sliding.slide(self._store.ended_since(since_s), now)
        self._read_until_s = now
        turn = follow(self._standing, accused_by(now, length_s, rows), now, self._patience)
        if turn.named or turn.cleared or any(each.named for each in turn.standing):
            if heard := list(self._said(turn)):
                self._tell(heard)  # first, for it is harmless twice
            self._store.note(turn, now)
        self._standing = turn.standing
        for each in turn.named:
            log.info("suspect: %s", in_words(each))
        for each in turn.cleared:
            log.info("no suspect any more: %s %s", *each.first)
        return tuple(each for each in turn.standing if each.named)

    def _said(self, turn: WindowChange) -> Iterator[Input]:
        for each in turn.named:
            yield ExceptionRaised(suspect_to_exception(each, self._store.cluster), own=True)
        for each in turn.cleared:
            yield Settled(suspect_to_exception(each, self._store.cluster).id, ExceptionOutcome.WITHDRAWN)
