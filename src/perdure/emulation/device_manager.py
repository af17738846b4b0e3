"""A GPU that programs share, behind a Unix socket: each has a queue of work, and an order says whose is next.

One line of JSON each way: ``{"number": n, "seconds": s}`` is answered by ``{"number": n, "done": true}`` once as many
seconds have passed for it alone. Without seconds it is answered at once, and so is a copy (``"link": true``), which
says what it takes: copies of one program go on while another computes. A claim of memory has ``persistent_mib`` and
``peak_mib``. What stands against it is ``refused`` where memory does not suffice, ``broken`` where the GPU is, and
``denied`` where it is not the program's. A program leaves by closing its connection; `shared_gpu` is its side.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import stat
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import DecodeError, Struct, ValidationError, json

from perdure.emulation.clocks import RealClock
from perdure.emulation.device_users import may_use, peer_of
from perdure.emulation.faults import DeviceFault, FaultKind, error_of, slowdown, to_kernel_log
from perdure.emulation.sharing import Order, SharingProgram, fits_beside
from perdure.errors import StateError

LONGEST_LINE = 4096
MOST_PROGRAMS = 256
MOST_DENIED = 16
"""Connections of users that have no job on the GPU: they wait to be told so, and keep nobody else out."""
MOST_OF_ONE_USER = 64
"""Programs of one user, where a GPU serves the jobs of several."""
MOST_AHEAD = 64
"""Pieces of work that a program may have in its queue."""

LOOK_S = 0.25
"""So often a manager looks, during long work, whether it should end."""

_FULL_S = 0.001
"""How long who comes in waits at a time while this process may open no more files."""

_ROUNDED_S = 0.002
"""A selector's waits are in milliseconds, and rounded up: the end of a piece of work is waited for by a clock."""


class WorkRequest(Struct, frozen=True):
    """Work that a program has for the GPU."""

    number: int
    seconds: float
    persistent_mib: float = 0.0
    peak_mib: float = 0.0
    link: bool = False  # a copy or a collective


class WorkAnswer(Struct, frozen=True, omit_defaults=True):
    """What became of it. `at` is the end of work, in seconds of the system's monotonic clock."""

    number: int
    done: bool = False
    at: float = 0.0
    seconds: float = 0.0
    refused: str = ""
    broken: str = ""
    denied: str = ""
    full: str = ""


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A GPU of a node as its manager knows it. Times of `faults` are seconds since the manager's start."""

    path: Path  # of its socket
    capacity_mib: float
    order: Order
    number: int = 0  # on its node
    faults: tuple[DeviceFault, ...] = ()
    kernel_log: Path | None = None
    jobs: Path | None = None  # where the resource manager says whose it is; without, who may open the socket may use it


class _Conversation:
    """A connection, and the program at its other end with its queue of requests and when each came."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self.link, self.program, self.unread, self.left_at = link, SharingProgram(name), b"", 0.0
        self.queue: deque[tuple[WorkRequest, float]] = deque()
        self.pid, self.user = peer_of(link)

    def put(self, request: WorkRequest, now: float) -> None:
        if not self.queue:
            self.program.off_gpu_s = max(0.0, now - self.left_at) if self.left_at else 0.0
        self.queue.append((request, now))

    def say(self, answer: WorkAnswer) -> None:
        try:
            self.link.sendall(json.encode(answer) + b"\n")
        except OSError:  # it has left, or does not read, which others shall not wait for
            with suppress(OSError):
                self.link.shutdown(socket.SHUT_RDWR)  # heard next as its leaving


class _Faults:
    """What is wrong with a device, and what its driver has said of it."""

    def __init__(self, device: SharedDevice) -> None:
        self._device, self._felt = device, set[DeviceFault]()

    def broken(self, now: float, pid: int) -> str:
        """What a program is told that asks something of the device; nothing where it works."""
        for fault in self._now(now):
            if fault.breaks:
                if self._device.kernel_log is not None and fault not in self._felt:
                    to_kernel_log(self._device.kernel_log, fault, self._device.number, pid)
                self._felt.add(fault)
                return str(error_of(fault))
        return ""

    def takes_s(self, seconds: float, link: bool, now: float) -> float:
        """How long work takes that would take `seconds`."""
        hung = [each for each in self._now(now) if each.kind is FaultKind.HANG and each not in self._felt]
        self._felt.update(hung)
        slower = slowdown(self._device.faults, now, 0, self._device.number, link)
        return seconds * slower + sum(each.value for each in hung)

    def _now(self, now: float) -> list[DeviceFault]:
        return [each for each in self._device.faults if each.active(now, 0, self._device.number)]


class _Manager:
    """Who is there, what runs, and until when."""

    def __init__(self, device: SharedDevice) -> None:
        self._device, self._faults = device, _Faults(device)
        self.talks: dict[socket.socket, _Conversation] = {}
        self.served: dict[str, float] = {}  # of programs that had anything
        self._came = 0
        self.clock = RealClock()
        self._running: _Conversation | None = None
        self._end = self._takes_s = 0.0

    def welcome(self, link: socket.socket) -> None:
        link.setblocking(False)
        self.talks[link] = _Conversation(link, f"program {self._came}")
        self._came += 1

    def no_room(self, link: socket.socket) -> str:
        """Why one more program is turned away; "" where it may come. No user's programs keep those of others out."""
        there = Counter(each.user for each in self.talks.values())
        if there.total() >= MOST_PROGRAMS:
            return f"{MOST_PROGRAMS} programs share this GPU already"
        user = peer_of(link)[1]
        if self._may_use(user):
            is_full = self._device.jobs is not None and there[user] >= MOST_OF_ONE_USER
            return f"{MOST_OF_ONE_USER} programs of yours share this GPU already" if is_full else ""
        denied = sum(count for other, count in there.items() if not self._may_use(other))
        return "" if denied < MOST_DENIED else self._not_given()

    def _may_use(self, user: int) -> bool:
        device = self._device
        return device.jobs is None or may_use(device.jobs, device.number, user)

    def _not_given(self) -> str:
        return f"GPU {self._device.number} of this node is not given to any job of yours"

    def leave(self, link: socket.socket) -> None:
        talk = self.talks.pop(link)
        link.close()
        if self._running is talk:  # nobody waits for its work any more
            self._running = None

    def go_on(self) -> float:
        """End work whose time has come, begin the next; returns how long nothing happens by itself."""
        while True:
            if self._running is None and not self._begin():
                return LOOK_S
            if (left := self._end - self.clock.now) > _ROUNDED_S:
                return min(LOOK_S, left - _ROUNDED_S)
            self.clock.advance_to(self._end)
            self._finish()

    def _begin(self) -> bool:
        waiting = {}
        for talk in self.talks.values():
            if talk.queue:
                request, talk.program.asked_at = talk.queue[0]
                talk.program.wanted_s = request.seconds
                waiting[talk.program.name] = talk
        if not waiting:
            return False
        chosen = self._device.order([talk.program for talk in waiting.values()])
        self._running = waiting[chosen.name]
        now = self.clock.now
        self._takes_s = self._faults.takes_s(chosen.wanted_s or 0.0, False, now)
        self._end = now + self._takes_s
        return True

    def _finish(self) -> None:
        talk, self._running = self._running, None
        if talk is None:
            return
        (request, _), talk.left_at = talk.queue.popleft(), self.clock.now
        talk.program.wanted_s = None
        talk.program.off_gpu_s = 0.0  # where its next request is there already
        talk.program.served_s += self._takes_s
        self.served[talk.program.name] = talk.program.served_s
        said = self._faults.broken(self.clock.now, talk.pid)
        talk.say(WorkAnswer(request.number, not said, at=time.monotonic(), broken=said))

    def hear(self, talk: _Conversation) -> bool:
        """Read what a program asks; False once it has left, or talks nonsense."""
        try:
            found = talk.link.recv(LONGEST_LINE)
        except OSError:
            return False
        *lines, talk.unread = (talk.unread + found).split(b"\n")
        return bool(found) and len(talk.unread) <= LONGEST_LINE and all(self._asked(talk, line) for line in lines)

    def _asked(self, talk: _Conversation, line: bytes) -> bool:
        try:
            asked = json.decode(line, type=WorkRequest)
        except (DecodeError, ValidationError):
            return False
        if not (0 <= asked.seconds < 86400 and asked.persistent_mib >= 0 and asked.peak_mib >= 0):
            return False
        now = self.clock.now
        if said := self._against(talk, asked, now):
            talk.say(said)
        elif asked.link:
            seconds = self._faults.takes_s(asked.seconds, True, now)
            talk.say(WorkAnswer(asked.number, done=True, at=time.monotonic(), seconds=seconds))
        elif not asked.seconds:
            talk.say(WorkAnswer(asked.number, done=True, at=time.monotonic()))
        else:
            talk.put(asked, now)
        return len(talk.queue) <= MOST_AHEAD

    def _against(self, talk: _Conversation, asked: WorkRequest, now: float) -> WorkAnswer | None:
        """Why a program gets nothing of what it asks for."""
        device, program = self._device, talk.program
        if not self._may_use(talk.user):
            return WorkAnswer(asked.number, denied=self._not_given())
        if said := self._faults.broken(now, talk.pid):
            return WorkAnswer(asked.number, broken=said)
        held = program.persistent_mib, program.peak_mib
        program.persistent_mib = max(program.persistent_mib, asked.persistent_mib)
        program.peak_mib = max(program.peak_mib, asked.peak_mib)
        if not fits_beside([each.program for each in self.talks.values()], device.capacity_mib):
            program.persistent_mib, program.peak_mib = held
            what = "the programs that share this GPU do not fit into its memory together"
            return WorkAnswer(asked.number, refused=what)
        return None


def _next_in(door: socket.socket, manager: _Manager) -> socket.socket | None:
    """Who comes in; None where it is turned away, which it is told, or has gone again."""
    try:
        link = door.accept()[0]
    except OSError:  # this process has as many files open as it may, until somebody leaves
        time.sleep(_FULL_S)
        return None
    if not (why := manager.no_room(link)):
        return link
    with link, suppress(OSError):
        link.setblocking(False)
        link.sendall(json.encode(WorkAnswer(0, full=why)) + b"\n")
    return None


def _clear(path: Path) -> None:
    """Remove the socket of a manager that was killed: one of our own where nobody answers."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid():
            with socket.socket(socket.AF_UNIX) as asked:
                asked.setblocking(False)
                if asked.connect_ex(str(path)) == errno.ECONNREFUSED:
                    path.unlink()


def serve(device: SharedDevice, stopped: Callable[[], bool]) -> dict[str, float]:
    """Serve one device until `stopped`; returns the seconds that each program has had. Raises `StateError`."""
    path, manager = device.path, _Manager(device)
    with socket.socket(socket.AF_UNIX) as door, selectors.DefaultSelector() as selector:
        try:
            _clear(path)
            door.bind(str(path))
        except OSError as err:
            raise StateError(
                str(path), f"no socket can be made there: {err.strerror}", "Name another --socket"
            ) from err
        path.chmod(0o666 if device.jobs else 0o600)
        door.listen(MOST_PROGRAMS)
        selector.register(door, selectors.EVENT_READ)
        try:
            while not stopped():
                for key, _ in selector.select(manager.go_on()):
                    if key.fileobj is door:
                        if (link := _next_in(door, manager)) is not None:
                            manager.welcome(link)
                            selector.register(link, selectors.EVENT_READ)
                    elif not manager.hear(talk := manager.talks[key.fileobj]):  # type: ignore[index]
                        selector.unregister(talk.link)
                        manager.leave(talk.link)
        finally:
            path.unlink(missing_ok=True)
            for talk in manager.talks.values():
                talk.link.close()
    return manager.served
