"""Telling Perdure's service of what happens to a task, where the environment says how to reach it.

It is the owner's word, weighed as such, and never waited for: a service that is away costs a few seconds at the end.
The recovery itself follows from the end of the attempt, which the service sees for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from perdure.errors import InputError, PerdureError
from perdure.job.identity import Start, Task, service_job_of
from perdure.job.output import say

if TYPE_CHECKING:
    from perdure.hangs.rank_state import RankState

WAIT_S = 5.0
MAX_NAMED = 64  # ranks, and nodes, that one exception is about
Tell = Callable[..., object]


class ServiceReporter:
    """Raises exceptions of one task, each in the background; nothing is raised here, whatever the result."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._threads: list[threading.Thread] = []

    def raise_(self, type_: str, *, severity: int, note: str, about: Sequence[RankState] = ()) -> None:
        """Where it is `about` known ranks and their nodes, these are its subject, and not the task that reports it."""
        if self._tell is not None:
            tell, ranks = self._tell, [sight.rank for sight in about if sight.rank is not None][:MAX_NAMED]
            if ranks:
                nodes = list(dict.fromkeys(sight.node for sight in about if sight.node))[:MAX_NAMED]
                tell = partial(tell, nodes=nodes, ranks=ranks)
            thread = threading.Thread(target=self._send, args=(tell, type_, severity, note), daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Wait a little for what is still on its way."""
        for thread in self._threads:
            thread.join(WAIT_S)

    def _send(self, tell: Tell, type_: str, severity: int, note: str) -> None:
        try:
            try:
                tell(type_, severity=severity, note=note)
            except InputError as err:
                if err.args[0] != "incarnation":
                    raise
                tell(type_, severity=severity, note=note, incarnation=0)  # it has not seen this start yet
        except PerdureError as err:
            say(f"perdure exec: the service was not informed of {type_}: {err}")


def has_service(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a service."""
    return bool(environment.get("PERDURE_SOCKET") or environment.get("PERDURE_URL"))


def teller(start: Start, task: Task, environment: Mapping[str, str]) -> Tell | None:
    """``perdure.client.raise_exception`` for this task; None where the environment names no service."""
    if not has_service(environment):
        return None
    from perdure import client  # only here: most jobs have no way to a service, and it takes its time

    return partial(
        client.raise_exception,
        job=service_job_of(environment) or start.job_id,
        nodes=[task.node],
        ranks=[] if task.rank is None else [task.rank],
        incarnation=start.service_incarnation,
        service=client.Service.of(environment),
    )
