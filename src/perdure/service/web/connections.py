"""Connections, bounded in number and in time: whoever opens many, or sends nothing, stops nothing else.

File descriptors are shared with what looks at the cluster and with the journal. So connections get a part of them, and
where that is full, the ones that have waited longest for the rest of their request give way to new ones.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from typing import Any

import h11

from perdure.log import Repeats
from perdure.service.access.peers import PeerProtocol

log = logging.getLogger("perdure")

PATIENCE_S = 15.0  # for a request's headers, and for its body at once
SLOWEST_BPS = 16 * 1024  # a body that comes faster than this may take longer
STUCK_S = 60.0  # for a client that does not read its answer
BACKLOG = 64  # accepted at once, on each socket
WANTED_DESCRIPTORS = 8192
RESERVED = 384  # descriptors for the journal, the resource manager and logs, and for what is accepted at once
MOST_CONNECTIONS = 4096
GIVES_WAY = 16  # one of this many, where there is no room

_READING = (h11.IDLE, h11.SEND_BODY)
_repeats = Repeats()


def raise_descriptor_limit() -> None:
    """Take as many file descriptors as this process may; 1,024 are systemd's default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(WANTED_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """How many connections leave enough descriptors for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, soft - min(RESERVED, soft // 2))


class BoundedProtocol(PeerProtocol):
    """HTTP with time limits for requests that do not come and answers that are not read."""

    _since_s = 0.0
    _taken = 0
    _timer: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()
        self._timer = self.loop.call_later(PATIENCE_S, self._check)
        if len(self.connections) > most_connections():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        self._taken += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._begin()  # the next request's time
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._timer, self._stuck):
            if timer is not None:
                timer.cancel()

    @property
    def is_half_open(self) -> bool:
        """Whether its request has not come as a whole yet."""
        return self.conn.their_state in _READING

    @property
    def since_s(self) -> float:
        """Since when, by the loop's clock, its request is waited for."""
        return self._since_s

    def _begin(self) -> None:
        self._since_s, self._taken = self.loop.time(), 0

    def _check(self) -> None:
        now = self.loop.time()
        if self.is_half_open and now >= self._since_s + PATIENCE_S + self._taken / SLOWEST_BPS:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(PATIENCE_S / 2, self._check)

    def _make_room(self) -> None:
        """End the oldest that are half-open; where all are at work, this one."""
        others: list[Any] = [each for each in self.connections if each is not self and not each.transport.is_closing()]
        if len(others) < most_connections():
            return
        oldest = sorted((each for each in others if each.is_half_open), key=lambda each: each.since_s)
        gone = oldest[: max(1, len(others) // GIVES_WAY)] or [self]
        for each in gone:
            each.transport.abort()
        if _repeats.is_news("full", "full", time.monotonic()):
            log.warning("%d connections are open, as many as may be: those without a request are ended", len(others))


def accept_quietly(loop: asyncio.AbstractEventLoop) -> None:
    """Say once in a while, and not for each try, that no connection can be accepted."""

    def say(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not str(context.get("message", "")).startswith("socket.accept()"):
            loop.default_exception_handler(context)
        elif _repeats.is_news("accept", "accept", time.monotonic()):
            log.error("no connection can be accepted: %s", context.get("exception"))

    loop.set_exception_handler(say)


class OnceInAWhile(logging.Filter):
    """Passes on what strangers can make a library log, once in ten minutes."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        return bool(record.exc_info) or self._repeats.is_news(record.msg, record.msg, time.monotonic())
