"""What one look at the process of a rank shows: whether it works, waits for its peers, or stands still elsewhere.

Pure: from its state, its use of a core, the system call that it is in and, where somebody can tell, its Python stack.
A system call alone cannot tell a lock from a collective; a stack can.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

PYTHON = "Python"  # of `Seen.code`
BUSY_FRAC = 0.5  # of a core, by one of its processes
MOVES_BYTES_S = 256 * 1024  # that one of its processes reads and writes
MAX_WHERE = 160  # characters of a place
SHOWN_FRAMES = 12


class Life(StrEnum):
    """What a rank is at."""

    DEAD = "dead"  # it has ended with a failure
    STOPPED = "stopped"  # by a signal or a debugger
    WORKS = "works"
    ELSEWHERE = "elsewhere"  # stands still, and not for its peers
    ENDED = "ended"  # with exit code 0
    UNCLEAR = "unclear"  # stands still; nothing says for what
    WAITS = "waits"  # for its peers: in a collective, or for the rendezvous


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python stack."""

    function: str
    file: str
    line: int

    @property
    def is_of_library(self) -> bool:
        return "site-packages/" in self.file or "/lib/python" in self.file or self.file.startswith("<")

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at one process finds."""

    state: str = "S"  # its letter in /proc
    busy_frac: float = 0.0
    bytes_s: float = 0.0  # read and written
    call: str = ""  # the system call of its first thread, "" where nobody can tell
    target: str = ""  # what that call is about: "/data/part-3", "pipe", "socket"
    frames: tuple[Frame, ...] = ()  # of its first thread, the innermost first
    has_gpu: bool = False
    code: str = ""  # that its first thread waits in: "Python", a library that knows peers, "" for others
    below: str = ""  # what stands still below it: "its process 4711 opens a file"


@dataclass(frozen=True, slots=True)
class RankState:
    """What a rank is at, and where."""

    rank: int | None
    node: str
    life: Life
    where: str = ""
    pid: int = 0
    step: int | None = None  # the last that it told
    silent_s: float | None = None  # since it told one
    collective: str = ""  # in which it waits
    stack: tuple[str, ...] = ()
    exit_code: int = 0
    signal: int = 0

    @property
    def name(self) -> str:
        """``rank 1 on node2``."""
        return ("the program" if self.rank is None else f"rank {self.rank}") + (f" on {self.node}" if self.node else "")

    @property
    def ending(self) -> str:
        """How a dead one ended."""
        return f"was ended by signal {self.signal}" if self.signal else f"ended with exit code {self.exit_code}"


def life_of(seen: Seen) -> tuple[Life, str, str]:
    """What it is at, where, and the collective in which it waits ("" for none that is known)."""
    frames = seen.frames
    collective = next((found for frame in frames[:8] if (found := _collective(frame))), "")
    where = _place(frames) or _call_says(seen)
    if seen.target and seen.call in ("read", "lock"):
        where = f"{where}, it {_CALLS_SAY[seen.call]} {seen.target}" if frames else f"{where} {seen.target}"
    if seen.below:
        where = f"{where}; {seen.below}" if where else seen.below
    where = where[:MAX_WHERE]
    if seen.state in "Tt":
        return Life.STOPPED, where, collective
    if seen.bytes_s >= MOVES_BYTES_S and (not collective or collective == _BACKWARD):
        return Life.WORKS, where, ""
    is_busy = seen.busy_frac >= BUSY_FRAC
    if collective and not (is_busy and collective == _BACKWARD and not seen.has_gpu):
        return Life.WAITS, where, collective
    if is_busy:  # what waits for a GPU is busy, too
        return (Life.UNCLEAR if seen.has_gpu else Life.WORKS), where, ""
    if seen.code and not frames and seen.call in _WAITS:
        return (Life.ELSEWHERE if seen.code == PYTHON or seen.below else Life.WAITS), where, ""
    if seen.state == "D":
        return Life.ELSEWHERE, where or "waits for a disk or a file system", ""
    is_elsewhere = seen.call in _ELSEWHERE or (seen.call == "read" and seen.target != "socket")
    loads = any("torch/utils/data/" in frame.file for frame in frames)
    waits_for_gpu = bool(frames) and seen.has_gpu  # and so for its peers, as may be
    if is_elsewhere or loads or seen.below or (frames and not waits_for_gpu):
        return Life.ELSEWHERE, where, ""
    return Life.UNCLEAR, where, ""


_BACKWARD = "backward"
_PLACES = (
    "torch/distributed/", "torch/nn/parallel/distributed", "deepspeed/comm/", "horovod/",
    "lightning/fabric/strategies/", "lightning_fabric/strategies/", "accelerate/utils/operations",
)  # fmt: skip


def _collective(frame: Frame) -> str:
    """The collective that a frame is in; gradients are reduced within backward."""
    if frame.function == "_engine_run_backward":
        return _BACKWARD
    return frame.function if any(place in frame.file for place in _PLACES) and frame.function != "<module>" else ""


def _place(frames: tuple[Frame, ...]) -> str:
    """The innermost frame of the program's own code, with what it calls there."""
    own = next((frame for frame in frames if not frame.is_of_library), None)
    if own is None:
        return str(frames[0]) if frames else ""
    return str(own) if own is frames[0] else f"{own}, in {frames[0].function}"


def _call_says(seen: Seen) -> str:
    says = _CALLS_SAY.get(seen.call, "")
    if not seen.code or seen.call not in _WAITS:
        return says
    return ("waits for a lock" if seen.call == "futex" and seen.code == PYTHON else says) + f", in {seen.code}"


# ---------------------------------------------------------------- system calls

_CALLS_SAY: Mapping[str, str] = {
    "read": "reads",
    "open": "opens a file",
    "sleep": "sleeps",
    "child": "waits for a process that it has started",
    "lock": "waits for a file lock on",
    "connect": "connects to a server",
    "futex": "waits for a lock or a peer",
    "receive": "waits for data from a connection",
    "accept": "waits for somebody to connect",
    "poll": "waits for one of several files or connections",
    "write": "writes",
}
_WAITS = frozenset({"futex", "poll", "receive", "accept"})
"""What it is about depends on who calls."""
_ELSEWHERE = frozenset({"open", "sleep", "child", "lock", "connect"})
_NUMBERS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "x86_64": {
        "read": (0, 17, 19, 295), "write": (1, 18, 20), "open": (2, 257, 437), "sleep": (35, 230), "child": (61, 247),
        "lock": (73,), "connect": (42,), "futex": (202, 449), "receive": (45, 47, 299), "accept": (43, 288),
        "poll": (7, 23, 232, 270, 271, 281),
    },
    "aarch64": {
        "read": (63, 65, 67, 69), "write": (64, 66, 68), "open": (56, 437), "sleep": (101, 115), "child": (95, 260),
        "lock": (32,), "connect": (203,), "futex": (98, 449), "receive": (207, 212, 243), "accept": (202, 242),
        "poll": (22, 72, 73),
    },
}  # fmt: skip
_NAMES = {number: name for name, numbers in _NUMBERS.get(os.uname().machine, {}).items() for number in numbers}


def call_of(number: int) -> str:
    """A word for a system call of this machine; "" for one that tells nothing."""
    return _NAMES.get(number, "")
