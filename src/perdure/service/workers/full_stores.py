"""Looks at file systems that were full, and raises the all-clear once there is room."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from perdure.coordination.chain_state import Chain
from perdure.coordination.messages import ExceptionRaised, Input
from perdure.coordination.playbook import Playbook
from perdure.service.core.full_store import full_now, room_again
from perdure.service.core.messages import PERDURE

log = logging.getLogger("perdure")

LOOK_EVERY_S = 10.0


class FullStores:
    """One that does not answer holds up no other part of the service: `look` runs in a thread of its own."""

    def __init__(
        self,
        chain: Callable[[], Chain],
        playbook: Playbook,
        tell: Callable[[tuple[Input, ...]], object],
        clock: Callable[[], float],
    ) -> None:
        self._chain = chain
        self._playbook = playbook
        self._tell = tell
        self._clock = clock

    def look(self) -> None:
        """Tell the chain of those that have room again."""
        for record in full_now(self._chain(), PERDURE):
            mount = self._playbook.resource(record.subject.resource).directory
            try:
                disk = os.statvfs(mount)
            except OSError as err:
                log.warning("%s cannot be looked at: %s", mount, err.strerror)
                continue
            free = disk.f_bavail / disk.f_blocks if disk.f_blocks else 0.0
            if restored := room_again(record, free, PERDURE, self._clock()):
                self._tell((ExceptionRaised(restored, own=True),))
