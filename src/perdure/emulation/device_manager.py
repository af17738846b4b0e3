"""A GPU that programs share, behind a Unix socket: each asks for its work, waits for its turn, and is told of the end.

One line of JSON each way: ``{"seconds": s, "persistent_mib": p, "peak_mib": m}``, answered by ``{"done": true}`` once
as many seconds have passed for it alone, or by ``{"refused": "..."}`` where memory does not suffice, by
``{"broken": "..."}`` where the GPU is, and by ``{"denied": "..."}`` where it is not the program's. A program leaves by
closing its connection.
"""

from __future__ import annotations

import select
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec import DecodeError, Struct, ValidationError, json

from perdure.emulation.clocks import RealClock
from perdure.emulation.device_users import may_use, peer_of
from perdure.emulation.faults import DeviceError, DeviceFault, FaultKind, error_of, slowdown, to_kernel_log
from perdure.emulation.sharing import Order, SharingProgram, fits_beside
from perdure.errors import InputError, StateError

LONGEST_LINE = 4096
MOST_PROGRAMS = 256
LOOK_S = 0.25
"""So often a manager looks, during long work, whether it should end and whether the program is still there."""


class WorkRequest(Struct, frozen=True):
    """Work that a program has for the GPU."""

    seconds: float
    persistent_mib: float = 0.0
    peak_mib: float = 0.0
    link: bool = False  # a copy or a collective


class WorkAnswer(Struct, frozen=True, omit_defaults=True):
    """What became of it."""

    done: bool = False
    refused: str = ""
    broken: str = ""
    denied: str = ""


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
    """A connection, and the program at its other end."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self.link, self.program, self.unread, self.left_at = link, SharingProgram(name), b"", 0.0
        self.by_link = False  # what it asked for is a copy or a collective
        self.pid, self.user = peer_of(link)


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


def serve(device: SharedDevice, stopped: Callable[[], bool]) -> dict[str, float]:
    """Serve one device until `stopped`; returns the seconds that each program has had. Raises `StateError`."""
    talks: dict[socket.socket, _Conversation] = {}
    served: dict[str, float] = {}
    clock, faults, path = RealClock(), _Faults(device), device.path
    with socket.socket(socket.AF_UNIX) as door, selectors.DefaultSelector() as selector:
        try:
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
                waits = any(talk.program.wanted_s is not None for talk in talks.values())
                for key, _ in selector.select(0 if waits else 0.05):
                    if key.fileobj is door:
                        link = door.accept()[0]
                        if len(talks) >= MOST_PROGRAMS:
                            link.close()
                            continue
                        link.settimeout(5.0)
                        talks[link] = _Conversation(link, f"program {len(served)}")
                        served[talks[link].program.name] = 0.0
                        selector.register(link, selectors.EVENT_READ)
                    elif not _hear(talk := talks[key.fileobj], talks, device, faults, clock.now):  # type: ignore[index]
                        selector.unregister(talk.link)
                        del talks[talk.link]
                        talk.link.close()
                waiting = [talk.program for talk in talks.values() if talk.program.wanted_s is not None]
                if waiting:
                    chosen = device.order(waiting)
                    talk = next(each for each in talks.values() if each.program is chosen)
                    seconds, chosen.wanted_s = chosen.wanted_s or 0.0, None
                    seconds = faults.takes_s(seconds, talk.by_link, clock.now)
                    if not _pass(clock, seconds, lambda: stopped() or _has_left(talk.link)):  # noqa: B023 - called here
                        continue
                    chosen.served_s += seconds
                    served[chosen.name] = chosen.served_s
                    talk.left_at = clock.now
                    _say(talk, WorkAnswer(done=True))
        finally:
            path.unlink(missing_ok=True)
            for talk in talks.values():
                talk.link.close()
    return served


def _pass(clock: RealClock, seconds: float, ended: Callable[[], bool]) -> bool:
    """Let a piece of work take its time; False once nobody waits for it any more."""
    end = clock.now + seconds
    while clock.now < end:
        if ended():
            return False
        clock.advance_to(min(end, clock.now + LOOK_S))
    return True


def _has_left(link: socket.socket) -> bool:
    said = select.poll()
    said.register(link, select.POLLIN)
    try:
        return bool(said.poll(0)) and not link.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _hear(
    talk: _Conversation, talks: dict[socket.socket, _Conversation], device: SharedDevice, faults: _Faults, now: float
) -> bool:
    """Read what a program asks; False once it has left, or talks nonsense."""
    try:
        found = talk.link.recv(LONGEST_LINE)
    except OSError:
        return False
    talk.unread += found
    if not found or len(talk.unread) > LONGEST_LINE:
        return False
    line, newline, rest = talk.unread.partition(b"\n")
    if not newline:
        return True
    talk.unread, program = rest, talk.program
    try:
        asked = json.decode(line, type=WorkRequest)
    except (DecodeError, ValidationError):
        return False
    if not (0 <= asked.seconds < 86400 and asked.persistent_mib >= 0 and asked.peak_mib >= 0):
        return False
    if said := _against(talk, device, faults, now):
        _say(talk, said)
        return True
    held = program.persistent_mib, program.peak_mib
    program.persistent_mib = max(program.persistent_mib, asked.persistent_mib)
    program.peak_mib = max(program.peak_mib, asked.peak_mib)
    others = [each.program for each in talks.values()]
    if not fits_beside(others, device.capacity_mib):
        program.persistent_mib, program.peak_mib = held
        _say(talk, WorkAnswer(refused="the programs that share this GPU do not fit into its memory together"))
        return True
    program.off_gpu_s = now - talk.left_at if talk.left_at else 0.0
    program.asked_at, program.wanted_s, talk.by_link = now, asked.seconds, asked.link
    return True


def _against(talk: _Conversation, device: SharedDevice, faults: _Faults, now: float) -> WorkAnswer | None:
    """Why a program gets nothing from a device, whatever it asks for."""
    if device.jobs is not None and not may_use(device.jobs, device.number, talk.user):
        return WorkAnswer(denied=f"GPU {device.number} of this node is not given to any job of yours")
    if said := faults.broken(now, talk.pid):
        return WorkAnswer(broken=said)
    return None


def _say(talk: _Conversation, answer: WorkAnswer) -> None:
    with suppress(OSError):  # it has left; that is heard next
        talk.link.sendall(json.encode(answer) + b"\n")


class SharedGpu:
    """A program's connection to the manager of its GPU. Raises `InputError` if none answers within `wait_s`."""

    def __init__(self, path: str, wait_s: float = 10.0) -> None:
        self._path, self._link = path, socket.socket(socket.AF_UNIX)
        end = time.monotonic() + wait_s
        while True:  # a manager that is started beside the program may take a moment
            try:
                self._link.connect(path)
                break
            except OSError as err:
                if isinstance(err, PermissionError):
                    what = "another user shares this GPU"
                    raise InputError(
                        path, what, "Name a GPU of your own, or let its manager know jobs: --jobs"
                    ) from err
                if time.monotonic() > end:
                    what = "no manager of a GPU answers there"
                    raise InputError(path, what, "Start one: perdure emulate device --socket FILE") from err
                time.sleep(0.05)
        self._reader = self._link.makefile("rb")

    def run(self, request: WorkRequest) -> str:
        """Wait until the work is done; what is said where memory does not suffice, else nothing.

        Raises `DeviceError` where the GPU is broken, and `StateError` where it is not the program's or not served.
        """
        with suppress(BrokenPipeError, ConnectionResetError):
            self._link.sendall(json.encode(request) + b"\n")
            if line := self._reader.readline(LONGEST_LINE):
                answer = json.decode(line, type=WorkAnswer)
                if answer.denied:
                    raise StateError(self._path, answer.denied, "Ask for it, as by sbatch --gres=gpu:emulated:1")
                if answer.broken:
                    raise DeviceError(answer.broken)
                return answer.refused
        raise StateError(self._path, "the manager of this GPU has ended", "Start it: perdure emulate device")
