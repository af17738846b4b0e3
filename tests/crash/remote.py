"""The simulated cluster in a process of its own: requests and answers are lines of JSON on a Unix socket.

One client is served at a time, to the end of what it has sent: what a killed client asked for is carried out before
the next client hears anything, as a resource manager would.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from perdure.backends.protocol import TAIL_BYTES, Backend
from perdure.errors import ClusterBusy, ClusterError, NotFound
from perdure.model.actions import Action, Outcome
from perdure.model.jobs import Attempt
from perdure.model.observation import Observation
from perdure.model.output import LogMark, Output

Handler = Callable[[Any], Any]
_ERRORS = {error.__name__: error for error in (ClusterBusy, ClusterError, NotFound)}


def serve(listener: socket.socket, handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the handler of "stop" has been called. Handlers take and give JSON values."""
    stopped = False
    while not stopped:
        connection, _ = listener.accept()
        with suppress(ConnectionError), connection:  # clients may be killed
            stopped = _serve_one(connection, handlers)


def _serve_one(connection: socket.socket, handlers: Mapping[str, Handler]) -> bool:
    """Serve one client to its end; True where it asked to stop."""
    with connection.makefile("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break  # it died while it spoke
            name, given = msgspec.json.decode(line)
            answer = _answer(handlers[name], given)
            with suppress(ConnectionError):  # a dead client hears nothing; what else it has sent is still carried out
                connection.sendall(answer)
            if name == "stop":
                return True
    return False


def _answer(handler: Handler, given: Any) -> bytes:
    try:
        status, value = "ok", handler(given)
    except tuple(_ERRORS.values()) as err:
        status, value = type(err).__name__, list(err.args)
    return msgspec.json.encode((status, value)) + b"\n"


class RemoteBackend:
    """A `Backend` whose cluster lives in the process that serves `path`. Any handler can be called by `ask`."""

    def __init__(self, path: Path, cluster: str) -> None:
        self.cluster = cluster
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rwb")

    def ask(self, name: str, given: Any = None) -> Any:
        """Call a handler. Raises what it raised; `ClusterBusy` where the server is gone."""
        self._lines.write(msgspec.json.encode((name, given)) + b"\n")
        self._lines.flush()
        return self._reply()

    def _reply(self) -> Any:
        line = self._lines.readline()
        if not line:
            raise ClusterBusy(self.cluster, "the simulation is gone", "Start it again")
        status, value = msgspec.json.decode(line)
        if status != "ok":
            raise _ERRORS[status](*value)
        return value

    def observe(self, since_s: float) -> Observation:
        return msgspec.convert(self.ask("observe", since_s), Observation)

    def output(self, attempt: Attempt, max_bytes: int = TAIL_BYTES, known: Sequence[LogMark] = ()) -> Output:
        return msgspec.convert(self.ask("output", [attempt, max_bytes, known]), Output)

    def perform(self, action: Action) -> Outcome:
        return msgspec.convert(self.ask("perform", action), Outcome)

    def lookup(self, action: Action) -> Outcome | None:
        found = self.ask("lookup", action)
        return None if found is None else msgspec.convert(found, Outcome)

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def handlers_of(backend: Backend) -> dict[str, Handler]:
    """The handlers that a `RemoteBackend` calls, for any backend."""
    return {
        "observe": backend.observe,
        "output": lambda given: backend.output(
            msgspec.convert(given[0], Attempt), given[1], msgspec.convert(given[2], tuple[LogMark, ...])
        ),
        "perform": lambda given: backend.perform(msgspec.convert(given, Action)),
        "lookup": lambda given: backend.lookup(msgspec.convert(given, Action)),
        "stop": lambda _: None,
    }
