"""Group commit: what many programs say at once is decided and journalled together, and each gets its own answer.

Whoever comes while a batch is being written waits, and the first of those that waited writes for all of them: one
transaction for as many as came meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from perdure.coordination.messages import Input, Refused

Tell = Callable[[tuple[Input, ...]], list[Refused]]


@dataclass(slots=True)
class _Ticket:
    inputs: tuple[Input, ...]
    refused: list[Refused] = field(default_factory=list)
    error: BaseException | None = None
    is_done: bool = False


class GroupCommit:
    """Safe for any number of threads."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._waiting: list[_Ticket] = []
        self._queue = threading.Lock()
        self._pen = threading.Lock()

    def tell(self, inputs: tuple[Input, ...]) -> list[Refused]:
        """Returns once `inputs` are durable, with those that were refused. Raises what writing them raised."""
        ticket = _Ticket(inputs)
        with self._queue:
            self._waiting.append(ticket)
        with self._pen:
            if not ticket.is_done:
                self._write()
        if ticket.error is not None:
            raise ticket.error
        return ticket.refused

    def _write(self) -> None:
        with self._queue:
            batch, self._waiting = self._waiting, []
        try:
            refused = self._tell(tuple(given for ticket in batch for given in ticket.inputs))
        except BaseException as err:
            for ticket in batch:
                ticket.error, ticket.is_done = err, True
            return
        of = {id(effect.given): effect for effect in refused}
        for ticket in batch:
            ticket.refused = [of[id(given)] for given in ticket.inputs if id(given) in of]
            ticket.is_done = True
