"""The processes of one program, also those that have left its process group.

torchrun gives each worker a session of its own: a signal to the program's group reaches the agent alone. On Linux this
process therefore adopts what the program orphans, and finds the whole tree in /proc. Elsewhere the group is all.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
LAUNCHERS = frozenset({"srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun", "perdure"})
_GONE_S = 2.0  # how long killed processes are waited for; one in an uninterruptible sleep does not go


class _SeenProcess(NamedTuple):
    parent: int
    state: str


def adopt_orphans() -> None:
    """On Linux: processes of the program whose parent ends become children of this one."""
    if sys.platform == "linux":
        libc: Any = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Family:
    """A program and all that descends from it. `strangers` are earlier children of this process.

    The program leads a process group of its own, or on a terminal shares this process's (`own_group` is False).
    """

    def __init__(self, program: subprocess.Popen[bytes], strangers: frozenset[int], *, own_group: bool = True) -> None:
        self._program, self._strangers = program, strangers
        self._group = program.pid if own_group else os.getpgrp()
        self.is_on_terminal = not own_group

    def members(self) -> list[int]:
        """All that live, parents before their children; the program alone where there is no /proc."""
        seen = _seen()
        if not seen:
            return [self._program.pid]
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in seen.items():
            children.setdefault(parent, []).append(pid)
        found = [pid for pid in children.get(os.getpid(), []) if pid not in self._strangers]
        for pid in found:  # grows while it is walked
            found += children.get(pid, [])
        return [pid for pid in found if seen[pid].state not in "ZX"]

    def signal_group(self, signum: int) -> None:
        """To the program's process group, as a terminal would."""
        if self._program.returncode is not None:  # reaped: its number may be somebody else's
            return
        if self._group != self._program.pid:  # this process is in that group too
            for pid in self.members():
                if _group_of(pid) == self._group:
                    _send(pid, signum)
            return
        with suppress(ProcessLookupError, PermissionError):  # nobody is left; macOS: "not permitted" of zombies
            os.killpg(self._group, signum)

    def signal_all(self, signum: int) -> None:
        """To every process of the program, in whatever group."""
        self.signal_group(signum)
        for pid in self.members():
            if _group_of(pid) != self._group:
                _send(pid, signum)

    def signal_listeners(self, signum: int) -> int:
        """To those that listen to it; returns how many. It would end the others.

        Where nobody can tell who listens (no /proc) the program's group gets it.
        """
        if not _seen():
            self.signal_group(signum)
            return 1
        told = self.listeners(signum)
        for pid in told:
            _send(pid, signum)
        return len(told)

    def listeners(self, signum: int) -> list[int]:
        """The members that listen to a signal."""
        return [pid for pid in self.members() if listens(pid, signum)]

    def warn(self, signum: int, *, workers: bool = False, spares_launchers: bool = False) -> int:
        """A warning to those that listen to it; returns how many got it.

        Not to copies of one that listens, such as the workers of a data loader: they would end of it, or save alongside
        it. With `workers` not to their agent either, who would end them, and with `spares_launchers` not to srun.
        """
        seen = _seen()
        if not seen:
            self.signal_group(signum)
            return 1
        hears = catches if spares_launchers else listens
        listening = {pid for pid in self.members() if pid in seen and hears(pid, signum)}
        told = {pid for pid in listening if not _is_copy_of(pid, seen[pid].parent, listening)}
        if workers:
            below = {pid for pid in told if _has_ancestor(seen[pid].parent, listening, seen)}
            told = below or told - {self._program.pid}  # the agent is the program itself
        for pid in told:
            _send(pid, signum)
        return len(told)

    def kill(self) -> None:
        """Kill all, and what they start meanwhile, until none is left or 2 s have passed."""
        deadline_s = time.monotonic() + _GONE_S
        self.signal_group(signal.SIGKILL)
        while left := self._left():
            for pid in left:
                _send(pid, signal.SIGKILL)
            self.reap_orphans()
            if time.monotonic() > deadline_s:
                return
            time.sleep(0.005)

    def _left(self) -> list[int]:
        """The members but the program. Once that is over, whoever is left has a child of this process above it."""
        if self._program.returncode is not None and children_of_this() <= self._strangers:
            return []
        return [pid for pid in self.members() if pid != self._program.pid]

    def reap_orphans(self) -> None:
        """Reap adopted processes that have ended; the program itself is left to be waited for."""
        waitid: Any = getattr(os, "waitid", None)
        while waitid is not None:
            try:
                ended = waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid == self._program.pid or ended.si_pid in self._strangers:
                return
            with suppress(ChildProcessError):
                os.waitpid(ended.si_pid, os.WNOHANG)


def children_of_this() -> frozenset[int]:
    found = set[int]()
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as children:
                found.update(map(int, children.read().split()))
    except (OSError, ValueError):  # a thread has ended, or the kernel has no such file
        return frozenset(pid for pid, seen in _seen().items() if seen.parent == os.getpid())
    return frozenset(found)


def topmost(variable: str, value: str) -> int:
    """The highest of this process's ancestors that was started with this variable; the process itself where none was.

    All that a batch script starts has that script, or the daemon's process above it, in common.
    """
    seen, found = _seen(), os.getpid()
    wanted, pid = os.fsencode(f"{variable}={value}"), found
    while pid in seen:
        with suppress(OSError):  # another user's: not part of the job
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found = pid
        pid = seen[pid].parent
    return found


def began_s(pid: int) -> float | None:
    """When a process began, in seconds since the epoch by this machine's clock; None where nobody can tell."""
    ticks, boot = _start_ticks(pid), None
    with suppress(OSError, ValueError):
        for line in (_PROC / "stat").read_text().splitlines():
            if line.startswith("btime "):
                boot = int(line.split()[1])
    return None if ticks is None or boot is None else boot + ticks / os.sysconf("SC_CLK_TCK")


def mark_of(pid: int) -> str:
    """What no other process has in common with this one: boot, number, start. "" where nobody can tell."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        if (ticks := _start_ticks(pid)) is not None:
            return f"{boot}:{pid}:{ticks}"
    return ""


def _start_ticks(pid: int) -> int | None:
    """Clock ticks from the machine's boot to the start of a process."""
    with suppress(OSError, ValueError, IndexError):
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    return None


def listens(pid: int, signum: int) -> bool:
    """Whether a process has a handler for a signal, or has blocked it in its first thread, as one does whose other
    thread waits for it (srun); False where nobody can tell."""
    return _is_in_mask(pid, signum, ("SigCgt:", "SigBlk:"))


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler of its own for a signal, and hands it on to nobody, as launchers do whose tasks
    would end of it; False where nobody can tell."""
    with suppress(OSError):
        return name_of(pid) not in LAUNCHERS and _is_in_mask(pid, signum, ("SigCgt:",))
    return False


def name_of(pid: int) -> str:
    """A process's name in a list of processes. Raises `OSError`."""
    return (_PROC / str(pid) / "comm").read_text("utf-8", "replace").strip()


def _is_in_mask(pid: int, signum: int, masks: tuple[str, ...]) -> bool:
    mask = 0
    with suppress(OSError, ValueError):
        for line in (_PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith(masks):
                mask |= int(line.split()[1], 16)
    return bool(mask >> (signum - 1) & 1)


def _is_copy_of(pid: int, parent: int, of: set[int]) -> bool:
    """Whether a process was forked from one of these and still runs the same command."""
    return parent in of and is_copy(pid, parent)


def is_copy(pid: int, other: int) -> bool:
    """Whether two processes run the same command, as a worker of a data loader does that was forked."""
    return _command(pid) == _command(other)


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes()
    return b""


def _has_ancestor(pid: int, wanted: set[int], seen: dict[int, _SeenProcess]) -> bool:
    while pid in seen:
        if pid in wanted:
            return True
        pid = seen[pid].parent
    return False


def _seen() -> dict[int, _SeenProcess]:
    """All processes of the machine that /proc shows."""
    found: dict[int, _SeenProcess] = {}
    with suppress(OSError):
        for name in os.listdir(_PROC):
            if name.isdecimal():
                with suppress(OSError, ValueError, IndexError):  # it has ended
                    with open(f"/proc/{name}/stat", "rb") as stat:
                        state, parent = stat.read().decode("ascii", "replace").rpartition(")")[2].split()[:2]
                    found[int(name)] = _SeenProcess(int(parent), state)
    return found


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _send(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)
