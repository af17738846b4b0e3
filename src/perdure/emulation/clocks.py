"""How time passes for an emulated program: as it does, or by jumps over what the GPU would compute.

Both clocks count seconds since they were made. The real one sleeps, and spins through the end of a sleep. The virtual
one runs as the real one while the program itself does something, stands still while it is inside the emulated
framework, and jumps where it waits for the GPU.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SPIN_S = 0.0001
"""The end of a sleep that is spent awake. Longer is worse on a busy machine: who is awake can be put aside for a whole
tick, and who wakes up comes before others."""

MOST_LATE_S = 0.05

_SLACK = 29, 1
"""``PR_SET_TIMERSLACK`` of prctl(2), and a nanosecond: without it the kernel may wake a sleeper 50 us late."""

_SLICE_NS = 100_000
"""The shortest slice of time that Linux (6.12 and later) gives a thread on request: who wants less comes sooner."""

_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # sched_setattr(2): size, policy, flags, nice, priority, slice, and two more

_LIBC = ctypes.CDLL(None)

_monotonic, _sleep = time.perf_counter, time.sleep  # the program may be given others


class ProgramClock(Protocol):
    """The time of an emulated program."""

    @property
    def now(self) -> float: ...

    @property
    def passed(self) -> float:
        """`now`, without what the kernel woke the program too late."""

    def advance_to(self, instant: float) -> None:
        """Go on until `instant`; nothing, where that has passed."""

    def outside(self) -> _StandStill:
        """A block that takes no time of the program: what a GPU's driver would not do."""

    def waiting(self) -> _StandStill:
        """A block in which the program waits for what goes on while the GPU computes: loaders of data."""


class RealClock:
    """Time as it passes, as if the kernel woke a program in time.

    What it wakes too late is not the program's: `now` is behind by that much until the next wait, which is as much
    shorter. So the ends of waits stay where they should be, and errors do not add up. What is later than `MOST_LATE_S`
    was stopped, and that time is its own.
    """

    def __init__(self) -> None:
        self._start = _monotonic()
        self._late = 0.0

    @property
    def now(self) -> float:
        return _monotonic() - self._start - self._late

    @property
    def passed(self) -> float:
        return _monotonic() - self._start

    def advance_to(self, instant: float) -> None:
        end = self._start + instant
        if (before := _monotonic()) - self._late >= end:
            return
        if end - before > SPIN_S:
            _wake_in_time()
            _sleep(end - before - SPIN_S)
        while (now := _monotonic()) < end:
            pass
        self._late = now - end if now - end < MOST_LATE_S else 0.0

    def outside(self) -> _StandStill:
        return _StandStill(None, False)

    def waiting(self) -> _StandStill:
        return _StandStill(None, False)


def _wake_in_time() -> None:
    """Ask that this thread be woken without slack, and soon beside others; no right is needed for that.

    It keeps its share of the processor, in shorter slices: also while the program computes, as who has computed for a
    long slice waits for a long one. Older kernels give all threads slices of one length.
    """
    _LIBC.prctl(*_SLACK)
    if _SET_ATTRIBUTES is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
        _LIBC.syscall(_SET_ATTRIBUTES, 0, wanted, 0)


class VirtualClock:
    """Time that jumps. A wait for loaders is shortened by jumps that came before: they would have worked meanwhile."""

    def __init__(self) -> None:
        self._start = _monotonic()
        self._shift = 0.0  # jumps, less what did not count
        self._depth, self._since = 0, 0.0
        self._credit = 0.0
        self._owner = os.getpid(), threading.get_ident()

    @property
    def now(self) -> float:
        real = self._since if self._depth else _monotonic()
        return real - self._start + self._shift

    @property
    def passed(self) -> float:
        return self.now

    def advance_to(self, instant: float) -> None:
        if (left := instant - self.now) > 0:
            self._shift += left
            self._credit += left

    def outside(self) -> _StandStill:
        return _StandStill(self, False)

    def waiting(self) -> _StandStill:
        return _StandStill(self, True)

    def enter(self) -> None:
        if self._depth == 0:
            self._since = _monotonic()
        self._depth += 1

    def leave(self, credited: bool) -> None:
        self._depth -= 1
        if self._depth == 0:
            taken = _monotonic() - self._since
            if credited:
                taken = min(taken, self._credit)
                self._credit -= taken
            self._shift -= taken

    def is_owner(self) -> bool:
        """Whether this is the thread whose time this is; others, and processes that load data, take none of it."""
        return (os.getpid(), threading.get_ident()) == self._owner


class _StandStill:
    """The block of `outside` and `waiting`; a class, since it is entered at every call of the framework."""

    __slots__ = ("_clock", "_credited")

    def __init__(self, clock: VirtualClock | None, credited: bool) -> None:
        self._clock, self._credited = clock if clock and clock.is_owner() else None, credited

    def __enter__(self) -> None:
        if self._clock:
            self._clock.enter()

    def __exit__(self, *_: object) -> None:
        if self._clock:
            self._clock.leave(self._credited)


@contextmanager
def programs_time(clock: VirtualClock) -> Iterator[None]:
    """Inside the block, `time` tells a virtual clock's time, and sleeping in its thread is a jump."""
    names = ("time", "perf_counter", "monotonic", "sleep", "time_ns", "perf_counter_ns", "monotonic_ns")
    before = {name: getattr(time, name) for name in names}
    zero = {name: before[name]() - clock.now for name in ("time", "perf_counter", "monotonic")}

    def teller(name: str) -> None:
        setattr(time, name, lambda: zero[name] + clock.now)
        setattr(time, f"{name}_ns", lambda: int((zero[name] + clock.now) * 1e9))

    def sleep(seconds: float) -> None:
        if not clock.is_owner():
            _sleep(seconds)
        elif seconds < 0:
            raise ValueError("sleep length must be non-negative")
        else:
            clock.advance_to(clock.now + seconds)

    for name in zero:
        teller(name)
    setattr(time, "sleep", sleep)  # noqa: B010 - the name is another's
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(time, name, function)
