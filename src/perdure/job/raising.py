"""Telling Perdure's service of what happens to a task, where the environment says how to reach it.

It is the owner's word, weighed as such, and never waited for: a service that is away costs a few seconds at the end.
The recovery itself follows from the end of the attempt, which the service sees for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from perdure.errors import PerdureError
from perdure.job.identity import Start, Task

WAIT_S = 5.0
Tell = Callable[..., object]


class Raiser:
    """Raises exceptions of one task, each in the background; nothing is raised here, whatever becomes of it."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._threads: list[threading.Thread] = []

    def raise_(self, type_: str, *, severity: int, note: str) -> None:
        if self._tell is not None:
            thread = threading.Thread(target=self._send, args=(self._tell, type_, severity, note), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Wait a little for what is still on its way."""
        for thread in self._threads:
            thread.join(WAIT_S)

    def _send(self, tell: Tell, type_: str, severity: int, note: str) -> None:
        with suppress(PerdureError):
            tell(type_, severity=severity, note=note)


def teller(start: Start, task: Task, environment: Mapping[str, str]) -> Tell | None:
    """``perdure.client.raise_exception`` for this task; None where the environment names no service."""
    if not environment.get("PERDURE_SOCKET") and not environment.get("PERDURE_URL"):
        return None
    from perdure import client  # only here: most jobs have no way to a service, and it takes its time

    return partial(
        client.raise_exception,
        job=start.job_id,
        nodes=[task.node],
        ranks=[] if task.rank is None else [task.rank],
        incarnation=start.service_incarnation,
        service=client.Service.of(environment),
    )
