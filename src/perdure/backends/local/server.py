"""Event loop of the daemon, in one thread: a Unix socket, exits of child processes, timers.

One JSON object a line in, one out: ``{"ok": ...}`` or ``{"error": {"kind", "where", "what", "fix"}}``.
All that was sent before is read before anything is answered, in the order of connecting: a client whose `perform`
got no answer may close, connect again and trust `lookup`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

from perdure.backends.local import paths
from perdure.backends.local.daemon import Daemon, Setup
from perdure.errors import InputError, PerdureError, StateError

MAX_CLIENTS = 64
MAX_REQUEST = 8 * 1024 * 1024
_BACKLOG = 128
_CHUNK = 256 * 1024


def serve(setup: Setup) -> None:
    """Be the cluster until a stop request, SIGTERM or SIGINT.

    Raises `StateError` where it cannot begin, or cannot write its memory any more: then all jobs' processes are ended.
    """
    daemon = Daemon(setup)
    address = paths.new_socket_path(setup.state_dir)
    try:
        try:
            _Server(daemon, address).run()
        finally:
            paths.forget_socket(setup.state_dir, address)
            daemon.shut_down("cluster daemon stopped")
    except sqlite3.Error as err:  # what is remembered and what is done must not part
        where = str(paths.database(setup.state_dir))
        raise StateError(where, f"cannot be written: {err}", "Make room, then start again") from err


class _Client:
    """One connection: what has come, and what is still to be sent."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.received = bytearray()
        self.to_send = bytearray()
        self.ended = False

    def receive(self) -> None:
        """Read all there is now."""
        try:
            while chunk := self.connection.recv(_CHUNK):
                self.received += chunk
                if len(self.received) > MAX_REQUEST:
                    break
            self.ended = True  # the other side closed, or says too much
        except BlockingIOError:
            return
        except OSError:
            self.ended = True

    def send(self) -> None:
        """Send what can be sent now."""
        try:
            while self.to_send:
                del self.to_send[: self.connection.send(self.to_send)]
        except BlockingIOError:
            return
        except OSError:
            self.to_send.clear()
            self.ended = True

    def lines(self) -> list[bytes]:
        """Take the requests that are complete; one that never gets complete is never carried out."""
        *lines, rest = bytes(self.received).split(b"\n")
        self.received = bytearray(rest)
        return lines


class _Server:
    def __init__(self, daemon: Daemon, address: Path) -> None:
        self._daemon = daemon
        self._stopping = False
        self._clients: list[_Client] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        mask = os.umask(0o177)
        try:
            self._listener.bind(str(address))
        finally:
            os.umask(mask)
        self._listener.listen(_BACKLOG)
        self._woken, self._waker = os.pipe()
        for descriptor in (self._woken, self._waker):
            os.set_blocking(descriptor, False)

    def run(self) -> None:
        """Serve until told to stop."""
        self._listen_to_signals()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        wait_s = self._daemon.advance()
        while not self._stopping:
            self._selector.select(wait_s)
            self._drain_wakeups()
            self._serve_clients()
            wait_s = self._daemon.advance()
        for client in self._clients:
            client.send()
            client.connection.close()
        self._listener.close()
        self._selector.close()

    def _listen_to_signals(self) -> None:
        def stop(*_: object) -> None:
            self._stopping = self._daemon.is_ending = True

        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for signum, handler in _handlers(stop):
            signal.signal(signum, handler)

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            return

    def _serve_clients(self) -> None:
        self._accept()
        for client in self._clients:
            client.receive()
        for client in tuple(self._clients):
            for line in client.lines():
                client.to_send += json.dumps(self._answer(line), separators=(",", ":")).encode() + b"\n"
            client.send()
            if client.ended:
                self._drop(client)
            else:
                writing = selectors.EVENT_WRITE if client.to_send else 0
                self._selector.modify(client.connection, selectors.EVENT_READ | writing)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody is waiting, or somebody has given up
                return
            if len(self._clients) == MAX_CLIENTS:
                self._drop(self._clients[0])  # the oldest makes room: a client asks briefly
            client = _Client(connection)
            self._clients.append(client)
            self._selector.register(connection, selectors.EVENT_READ)

    def _drop(self, client: _Client) -> None:
        self._clients.remove(client)
        self._selector.unregister(client.connection)
        client.connection.close()

    def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise InputError("request", "it is not an object", "Use the client of this version")
            if request.get("op") == "stop":
                self._stopping = self._daemon.is_ending = True
                return {"ok": {}}
            return {"ok": self._daemon.answer(request)}
        except PerdureError as err:
            return {"error": {"kind": type(err).__name__, "where": err.where, "what": err.what, "fix": err.fix}}
        except (ValueError, RecursionError) as err:
            return {"error": {"kind": "InputError", "where": "request", "what": str(err), "fix": "Send JSON"}}


def _handlers(stop: Callable[..., None]) -> list[tuple[int, Callable[..., None]]]:
    def hear(*_: object) -> None:
        """A child has ended: the wake-up is all that is needed."""

    return [(signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGCHLD, hear)]
