"""The watch: every few minutes, who the last hour's attempts accuse."""

from __future__ import annotations

import logging
from collections.abc import Callable

from perdure.blame.accuse import accused_by
from perdure.blame.sliding import Sliding
from perdure.blame.standing import Patience, Standing, follow
from perdure.service.blame.announce import in_words
from perdure.service.blame.ledger import Ledger
from perdure.service.blame.settings import BlameSettings

log = logging.getLogger("perdure")

LATE_S = 900.0
"""An attempt may be judged, and hence be read, so long after its end."""


class Watch:
    """Keeps the window and the suspects; `turn` moves both on. Who was named is read back after a restart."""

    def __init__(self, ledger: Ledger, settings: BlameSettings, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._sliding = Sliding(settings.window_s)
        self._patience = Patience(settings.confirm, settings.release)
        self._standing: tuple[Standing, ...] = ledger.standing()
        self._read_until_s = 0.0

    def turn(self) -> tuple[Standing, ...]:
        """Look once; who is named after it."""
        now, length_s = self._clock(), self._settings.window_s
        since_s = max(now - length_s, self._read_until_s - LATE_S)
        rows = self._sliding.slide(self._ledger.ended_since(since_s), now)
        self._read_until_s = now
        turn = follow(self._standing, accused_by(now, length_s, rows), now, self._patience)
        if turn.named or turn.cleared or any(each.named for each in turn.standing):
            self._ledger.note(turn, now)
        self._standing = turn.standing
        for each in turn.named:
            log.info("suspect: %s", in_words(each))
        for each in turn.cleared:
            log.info("no suspect any more: %s %s", *each.first)
        return tuple(each for each in turn.standing if each.named)
