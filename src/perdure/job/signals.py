"""Signals that come to the launcher, and which of them its program got itself.

Slurm signals every process of a step, a terminal every process of its foreground group: the program has such a signal
already, and must not get it twice. ``kill PID`` of this launcher, or a batch script's ``trap``, reaches this process
alone, and the signal must be handed on. A signal does not say which of the two it was. So a *witness* runs alongside
the program: a child that does nothing but tell which signals it gets. What comes to both is shared by the program.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
WITNESS_S = 0.25  # within which the witness gets what all processes of a step or group get
WITNESS = "perdure-signals"  # its name in a list of processes
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class Came(NamedTuple):
    """What has come to this process since the last time."""

    signals: frozenset[int] = frozenset()
    alone: frozenset[int] = frozenset()  # came to this process and not to its program; some of them came earlier


Heard = Callable[[float], Came]


class Sharing:
    """Finds out which signals came to this process alone. Instants are seconds on one clock that never goes back."""

    def __init__(self) -> None:
        self._waiting: dict[int, float] = {}  # came to this process
        self._witnessed: dict[int, float] = {}  # came to the witness

    def came(self, signum: int, now: float) -> None:
        if now - self._witnessed.pop(signum, -WITNESS_S) >= WITNESS_S:
            self._waiting.setdefault(signum, now)

    def witnessed(self, signum: int, now: float) -> None:
        if self._waiting.pop(signum, None) is None:
            self._witnessed[signum] = now

    def alone(self, now: float) -> frozenset[int]:
        """Those whose time is over; each is told once."""
        found = frozenset(signum for signum, came_s in self._waiting.items() if now - came_s >= WITNESS_S)
        for signum in found:
            del self._waiting[signum]
        return found

    def patience_s(self, now: float, most_s: float) -> float:
        """How long to wait for the next of them, at most."""
        return max(0.0, min((came_s + WITNESS_S - now for came_s in self._waiting.values()), default=most_s))


@contextmanager
def heard_signals(*, own_group: bool = True, clock: Callable[[], float] = time.monotonic) -> Iterator[Heard]:
    """Inside the block signals only leave a note; the function given waits for some and returns which came.

    `own_group` says whether the program is to run in a process group of its own; its witness does too.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    listened = (*FORWARDED, signal.SIGCONT, signal.SIGCHLD)
    previous = {signum: signal.signal(signum, _note) for signum in listened}
    witness = _Witness(own_group)
    sharing = Sharing()

    def wait(timeout_s: float) -> Came:
        timeout_s = min(timeout_s, sharing.patience_s(clock(), timeout_s))
        select.select([reader, *witness.readers()], [], [], timeout_s)
        came, now = frozenset(_read(reader)), clock()
        for signum in came.intersection(FORWARDED):
            sharing.came(signum, now)
        for signum in witness.told():
            sharing.witnessed(signum, now)
        return Came(came, sharing.alone(now))

    try:
        yield wait
    finally:
        witness.end()
        signal.set_wakeup_fd(previous_fd)
        for signum, handler in previous.items():
            signal.signal(signum, handler)
        os.close(reader)
        os.close(writer)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal, of which only the foreground group may read."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class _Witness:
    """The process alongside the program. Where it cannot be had, or has been killed, it reports nothing."""

    def __init__(self, own_group: bool) -> None:
        self._reader, self._pid = -1, 0
        if sys.platform != "linux":  # elsewhere nobody would end it with this process
            return
        libc, launcher = ctypes.CDLL(None), os.getpid()
        reader, writer = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if not self._pid:
                _bear_witness(writer, libc, launcher, own_group)
        except OSError:  # no more processes: signals are handed on
            os.close(reader)
        else:
            self._reader = reader
            os.set_blocking(reader, False)
        finally:
            os.close(writer)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def readers(self) -> list[int]:
        return [self._reader] if self._reader >= 0 else []

    def told(self) -> bytes:
        if self._reader < 0:
            return b""
        try:
            said = os.read(self._reader, 4096)
        except BlockingIOError:
            return b""
        if not said:
            self.end()
        return said

    def end(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


def _bear_witness(writer: int, libc: Any, launcher: int, own_group: bool) -> None:
    """Tell which signals come, until the launcher ends. All are blocked here, so none does anything else."""
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.prctl(_PR_SET_NAME, WITNESS.encode())
        if own_group:
            os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):  # the job's log is not held open
            os.dup2(null, descriptor)
        os.closerange(3, writer)
        os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
        while os.getppid() == launcher:
            os.write(writer, bytes([signal.sigwait(FORWARDED)]))
    finally:
        os._exit(0)


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


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 4096)
    except BlockingIOError:
        return b""
