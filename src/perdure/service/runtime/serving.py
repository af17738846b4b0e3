"""The pages and the API on their sockets, and what commands on this machine find them by."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn

from perdure.errors import ConfigError, NotFound, StateError
from perdure.installation import program, user_name
from perdure.service.access.auth import Identity, Role, TokenBook
from perdure.service.access.service_file import ServiceFile
from perdure.service.learning.learner import Learner
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.settings import ServiceSettings, Settings
from perdure.service.waits.watch import WaitsWatch
from perdure.service.web.app import create_app
from perdure.service.web.connections import (
    BACKLOG,
    BoundedProtocol,
    OnceInAWhile,
    accept_quietly,
)
from perdure.service.web.metrics import ServiceMetrics
from perdure.service.web.state import WebSettings
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.workers.commands import ServiceCommands
from perdure.service.workers.engine import Engine
from perdure.service.workers.kill_switch import KillSwitch

END_S = 3  # that requests have to end in; streams of events take one
SOCKET_FILE = "perdure.sock"  # in the state directory


def listen(host: str, port: int) -> socket.socket:
    """Take the port, or say who to ask for another. Raises `ConfigError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(128)  # from now on callers wait instead of being refused
    except OSError as err:
        sock.close()
        what = f"cannot be listened on: {err.strerror}"
        raise ConfigError(f"{host}:{port}", what, "Choose another with --port") from err
    return sock


@contextmanager
def unix_socket(path: Path, *, shared: bool) -> Iterator[socket.socket]:
    """The same service on a Unix socket; `shared`: every user of the machine may connect, and is known by the kernel.

    Raises `ConfigError`.
    """
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o111 if shared else 0o177)
    try:
        path.unlink(missing_ok=True)
        local.bind(str(path))
        local.listen(128)
    except OSError as err:
        local.close()
        what = f"cannot be listened on: {err.strerror or err}"
        raise ConfigError(str(path), what, "Name a shorter path with service.socket") from err
    finally:
        os.umask(before)
    try:
        yield local
    finally:
        path.unlink(missing_ok=True)


def serve(
    settings: Settings,
    engine: Engine,
    learner: Learner,
    metrics: ServiceMetrics,
    sock: socket.socket,
    url: str,
    state: Path,
    queue: ComparisonQueue | None,
    waits: WaitsWatch | None = None,
    policy: PolicyWorker | None = None,
) -> int:
    """Serve the pages until a signal ends it."""
    service = settings.service
    commands = ServiceCommands(engine, service.cluster, service.armed, KillSwitch(state), settings.look_every_s)
    tokens = TokenBook(state)
    web = WebSettings(hosts=service.hosts, notices=settings.notices.limits, proxy=settings.proxy)
    app = create_app(
        engine.journal.engine, commands, tokens, web,
        metrics=metrics, queue=queue, learner=learner, suspicion=settings.blame, starts=waits, policy=policy,
    )  # fmt: skip
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=END_S, http=BoundedProtocol,
        backlog=BACKLOG,
    )  # fmt: skip
    logging.getLogger("uvicorn.error").addFilter(OnceInAWhile())
    with left_for_commands(tokens, url, state):
        code = tokens.login_code(Identity(user_name(), Role.OPERATOR))
        print(f"Perdure watches {engine.backend.cluster}: {url}/?code={code}", flush=True)  # noqa: T201
        print(_what_next(state), flush=True)  # noqa: T201
        with unix_socket(service.socket or state / SOCKET_FILE, shared=service.socket is not None) as local:
            PageServer(config, app.state.listeners.close).run(sockets=[sock, local])
    return 0


def _what_next(state: Path) -> str:
    """Commands for another terminal, as they work there, and how this one ends."""
    perdure, of_state = program(), "" if state == ServiceSettings().state else f" --state {shlex.quote(str(state))}"
    commands = ", ".join(f"{perdure} {words}{of_state}" for words in ("open", "jobs", "why JOBID", "actions --stop"))
    return f"In another terminal: {commands}. Ctrl-C ends it; what it knows is kept in {state}."


class PageServer(uvicorn.Server):
    """Sends those who listen to events home before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, send_home: Callable[[], None]) -> None:
        super().__init__(config)
        self._send_home = send_home

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        accept_quietly(asyncio.get_running_loop())
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._send_home()
        await super().shutdown(sockets)


@contextmanager
def left_for_commands(tokens: TokenBook, url: str, state: Path) -> Iterator[None]:
    """While this runs, commands of the same user find the service and have a token for it."""
    _revoke_left_over(tokens, state)
    token = tokens.own(user_name(), Role.OPERATOR)
    mine = ServiceFile(url, os.getpid(), token)
    mine.write(state)
    try:
        yield
    finally:
        mine.remove(state)


def _revoke_left_over(tokens: TokenBook, state: Path) -> None:
    """Older versions kept their own token in the book; one that was killed has left it there."""
    with suppress(NotFound, StateError):
        if known := tokens.find(ServiceFile.read(state).token):
            tokens.revoke(known.token_id)


def spoken(host: str) -> str:
    """The host of an address at which this machine reaches the service; one that listens everywhere, on loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (named, not listened on)
    return f"[{host}]" if ":" in host else host
