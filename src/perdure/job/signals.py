"""Signals that come to the launcher: noted, and handed over when they are asked for."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
Heard = Callable[[float], set[int]]


@contextmanager
def heard_signals() -> Iterator[Heard]:
    """Inside the block signals only leave a note; the function given waits for some and returns which came."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    listened = (*FORWARDED, signal.SIGCONT, signal.SIGCHLD)
    previous = {signum: signal.signal(signum, _note) for signum in listened}

    def wait(timeout_s: float) -> set[int]:
        select.select([reader], [], [], timeout_s)
        try:
            return set(os.read(reader, 4096))
        except BlockingIOError:
            return set()

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(previous_fd)
        for signum, handler in previous.items():
            signal.signal(signum, handler)
        os.close(reader)
        os.close(writer)


@contextmanager
def until_told_to_end() -> Iterator[Callable[[float], bool]]:
    """Inside the block TERM, INT and HUP end nothing; the function given waits, and says whether one has come."""
    came = threading.Event()
    ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    previous = {signum: signal.signal(signum, lambda *_: came.set()) for signum in ends}
    try:
        yield came.wait
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _note(signum: int, frame: FrameType | None) -> None:
    """The wake-up is the note."""
