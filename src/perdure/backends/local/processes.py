"""Real processes: starting tasks behind a gate, and finding, signalling and ending all that a task has started.

A task leads a session of its own. Its program may move children into other process groups (launchers do), but
they stay in the session, so a node that dies, freezes or thaws takes all of it along.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from perdure.backends.local import task as task_module
from perdure.backends.local.store import Leftover

_PROC = Path("/proc")
_KILL_ROUNDS = 20  # a session that forks faster than it is killed is given up, loudly visible in its log


@dataclass(frozen=True, slots=True)
class TaskKey:
    """Which task."""

    job_id: str
    incarnation: int
    rank: int

    def __str__(self) -> str:
        return f"{self.job_id}#{self.incarnation}.{self.rank}"


@dataclass(frozen=True, slots=True)
class Orders:
    """What a task is to become, once the gate opens."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str
    nice: int
    limits: Mapping[str, int]  # of `resource.setrlimit`, by name

    def line(self) -> bytes:
        document = {
            "argv": self.argv,
            "env": dict(self.env),
            "workdir": self.workdir,
            "nice": self.nice,
            "limits": dict(self.limits),
        }
        return json.dumps(document).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class LocalTask:
    """A process that was started for one rank."""

    key: TaskKey
    node: str
    process: subprocess.Popen[bytes]
    born: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def leftover(self) -> Leftover:
        """What is needed to find it again after a crash."""
        return Leftover(self.pid, self.born, str(self.key))


class Tasks:
    """Every task process that has not been reaped, those of attempts that are over included."""

    def __init__(self) -> None:
        self._tasks: dict[TaskKey, LocalTask] = {}

    def spawn(self, key: TaskKey, node: str, log: IO[bytes]) -> LocalTask:
        """Start a process that waits at the gate. Raises `OSError` where the machine has no room for it."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", task_module.__file__],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={},
            start_new_session=True,
        )
        started = LocalTask(key, node, process, birth(process.pid) or "")
        self._tasks[key] = started
        return started

    def open_gate(self, task: LocalTask, orders: Orders) -> None:
        """Have the task execute its program. One that has died at the gate is found by `reap`."""
        gate = task.process.stdin
        if gate is None:
            return
        try:
            gate.write(orders.line())
            gate.close()
        except OSError:
            task.process.stdin = None

    def signal(self, keys: Iterable[TaskKey], signum: int) -> None:
        """KILL goes to the whole session, anything else to the task's own process group."""
        for task in (self._tasks[key] for key in keys if key in self._tasks):
            if signum == signal.SIGKILL:
                signal_session(task.pid, signal.SIGKILL)
            else:
                _signal_group(task.pid, signal.SIGCONT)
                _signal_group(task.pid, signum)

    def signal_node(self, node: str, signum: int) -> None:
        """To everything that any task of the node has started."""
        for task in self._tasks.values():
            if task.node == node:
                signal_session(task.pid, signum)

    def reap(self) -> list[tuple[LocalTask, int]]:
        """Collect the tasks that are over, with their return codes; what they left running is killed first."""
        over = []
        for key, task in tuple(self._tasks.items()):
            if not _has_exited(task.process):
                continue
            signal_session(task.pid, signal.SIGKILL)  # before its number can belong to somebody else
            status = task.process.wait()
            if task.process.stdin is not None and not task.process.stdin.closed:
                task.process.stdin.close()
            del self._tasks[key]
            over.append((task, status))
        return over

    def kill_all(self) -> None:
        """End everything, at once."""
        for task in self._tasks.values():
            signal_session(task.pid, signal.SIGKILL)

    def __len__(self) -> int:
        return len(self._tasks)


def kill_leftover(leftover: Leftover, marker: str) -> None:
    """End a task that an earlier daemon started. A process that merely has got its number is left alone.

    Where the task is gone but some of its session may live on, only processes whose environment holds `marker`
    are ended; where environments cannot be read (no /proc) these are left.
    """
    leader = birth(leftover.pid)
    if leader == leftover.born:
        signal_session(leftover.pid, signal.SIGKILL)
    elif leader is None and _PROC.is_dir():
        for pid in _members(leftover.pid, signal.SIGKILL):
            if marker.encode() in _environment(pid):
                _signal_process(pid, signal.SIGKILL)


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def birth(pid: int) -> str | None:
    """A text that no other process with this number ever has: boot and start instant. None where it is gone."""
    if not _PROC.is_dir():
        return _run_ps("-o", "lstart=", "-p", str(pid)).strip() or None
    stat = _stat(pid)
    return None if stat is None else f"{_boot_id()}:{stat[19]}"


def signal_session(leader: int, signum: int) -> None:
    """Signal every process of a session. KILL and STOP are repeated until no process escapes by forking."""
    if signum not in (signal.SIGKILL, signal.SIGSTOP):
        for pid in _members(leader, signum):
            _signal_process(pid, signum)
        return
    for _ in range(_KILL_ROUNDS):
        members = _members(leader, signum)
        if not members:
            return
        for pid in members:
            _signal_process(pid, signum)


def _members(leader: int, signum: int) -> list[int]:
    """Processes of the session that a signal still means something to: no zombies, for STOP none that is stopped."""
    settled = "ZXT" if signum == signal.SIGSTOP else "ZX"
    if not _PROC.is_dir():
        return _members_by_ps(leader, settled)
    members = []
    for entry in os.listdir(_PROC):
        stat = _stat(int(entry)) if entry.isdecimal() else None
        if stat is not None and int(stat[3]) == leader and stat[0] not in settled:
            members.append(int(entry))
    return members


def _members_by_ps(leader: int, settled: str) -> list[int]:
    """Where /proc is missing: the leader's group and all its descendants."""
    rows = [line.split() for line in _run_ps("-axo", "pid=,ppid=,pgid=,state=").splitlines()]
    found = {leader}
    while True:
        more = {int(pid) for pid, ppid, pgid, _ in rows if int(ppid) in found or int(pgid) in found} - found
        if not more:
            break
        found |= more
    return [int(pid) for pid, _, _, state in rows if int(pid) in found and state[0] not in settled]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on: state, ppid, pgrp, session, ..., start instant (19)."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


@cache
def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _run_ps(*options: str) -> str:
    return subprocess.run(["ps", *options], stdout=subprocess.PIPE, text=True, check=False).stdout


def _signal_group(leader: int, signum: int) -> None:
    try:
        os.killpg(leader, signum)
    except (ProcessLookupError, PermissionError):
        return  # it has ended; macOS says "not permitted" of a group of zombies


def _signal_process(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process is over, without reaping it where the system can tell."""
    waitid: Any = getattr(os, "waitid", None)
    if waitid is None:
        return process.poll() is not None
    return waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
