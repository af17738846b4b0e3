"""What stands in a program's way: a port that is taken, a server that fails, a lock, a signal.

A trouble is a context manager over `(directory, present)` that yields the environment for the program, and a
callable that disturbs it while it runs. With `present` False the trouble is gone and the world is well.
"""

from __future__ import annotations

import fcntl
import http.server
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import shared_memory
from pathlib import Path

Disturb = Callable[["subprocess.Popen[bytes]"], None]
Setting = tuple[dict[str, str], Disturb]
Trouble = Callable[[Path, bool], AbstractContextManager[Setting]]


def _calm(process: subprocess.Popen[bytes]) -> None:
    """Leave it alone."""


@contextmanager
def none(_directory: Path, _present: bool) -> Iterator[Setting]:
    yield {}, _calm


@contextmanager
def port_taken(_directory: Path, present: bool) -> Iterator[Setting]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        if present:
            holder.listen()
        else:
            holder.close()
        yield {"PORT": str(port)}, _calm


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers 200, or whatever its server's `ailment` is."""

    def do_GET(self) -> None:
        ailment = self.server.ailment  # type: ignore[attr-defined]
        if ailment == "slow":
            time.sleep(2)
        elif ailment == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.connection.close()
        elif ailment == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif ailment == "cut":
            self._answer(200, b"x" * 100, 4096)
        elif ailment.isdecimal():
            self.send_error(int(ailment))
        else:
            self._answer(200, b"ok", 2)

    do_POST = do_GET

    def _answer(self, status: int, body: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep silent."""

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:  # this connection was broken on purpose
            return


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    ailment = ""

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away, or a connection broken on purpose, is no error here."""


def _server(ailment: str) -> Trouble:
    @contextmanager
    def trouble(_directory: Path, present: bool) -> Iterator[Setting]:
        with _Server(("127.0.0.1", 0), _Handler) as server:
            server.ailment = ailment if present else ""
            port = server.server_address[1]
            if present and ailment == "down":
                server.server_close()
                yield {"PORT": str(port)}, _calm
                return
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            try:
                yield {"PORT": str(port)}, _calm
            finally:
                server.shutdown()

    return trouble


@contextmanager
def lock_held(directory: Path, present: bool) -> Iterator[Setting]:
    path = directory / "cache.lock"
    with path.open("w") as holder:
        if present:
            fcntl.flock(holder, fcntl.LOCK_EX)
        yield {"LOCK": str(path)}, _calm


@contextmanager
def lock_file(directory: Path, present: bool) -> Iterator[Setting]:
    path = directory / "in-use.lock"
    path.unlink(missing_ok=True)
    if present:
        path.touch()
    yield {"LOCK": str(path)}, _calm


@contextmanager
def database_locked(directory: Path, present: bool) -> Iterator[Setting]:
    path = directory / "study.db"
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("CREATE TABLE IF NOT EXISTS trials (x)")
        if present:
            other.execute("BEGIN EXCLUSIVE")
        yield {"DATABASE": str(path)}, _calm
    finally:
        other.close()


@contextmanager
def segment_left(_directory: Path, present: bool) -> Iterator[Setting]:
    name = f"foundry{os.getpid()}"
    if not present:
        yield {"SEGMENT": name}, _calm
        return
    block = shared_memory.SharedMemory(name, create=True, size=64)
    try:
        yield {"SEGMENT": name}, _calm
    finally:
        block.close()
        block.unlink()


@contextmanager
def terminated(_directory: Path, present: bool) -> Iterator[Setting]:
    def disturb(process: subprocess.Popen[bytes]) -> None:
        time.sleep(0.6)
        process.send_signal(signal.SIGTERM)

    yield {}, disturb if present else _calm


@contextmanager
def worker_killed(directory: Path, present: bool) -> Iterator[Setting]:
    path = directory / "worker.pid"

    def disturb(process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until and process.poll() is None:
            if path.exists() and (text := path.read_text()).isdecimal():
                os.kill(int(text), signal.SIGKILL)
                return
            time.sleep(0.01)

    yield {"PIDFILE": str(path)}, disturb if present else _calm


TROUBLES: dict[str, Trouble] = {
    "": none,
    "port-taken": port_taken,
    **{f"server-{name}": _server(name) for name in ("down", "slow", "reset", "close", "cut")},
    **{f"server-{status}": _server(str(status)) for status in (401, 404, 429, 502, 503)},
    "lock-held": lock_held,
    "lock-file": lock_file,
    "database-locked": database_locked,
    "shared-memory": segment_left,
    "sigterm": terminated,
    "kill-worker": worker_killed,
}
