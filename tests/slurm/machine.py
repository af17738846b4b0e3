"""The processes that make up one pretended machine: frozen, thawed and cut off as one.

A power cut leaves nobody to tell of it. Killed one after the other, the processes of a machine do tell: a shell whose
``sleep`` was killed first goes on and ends well, a step daemon reports that its task died of a signal. So all are
stopped first, and only what no longer moves is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 60.0
ROUND_S = 0.01

Environment = frozenset[bytes]


class NotReady(AssertionError):
    """Something did not come about in time."""


@dataclass(frozen=True, slots=True)
class Machine:
    """All processes whose environment is of the machine, and their children, whatever environment these made up.

    `keeper`: a program whose processes belong to the machine where a child does, as they write over their environment.
    """

    name: str
    is_ours: Callable[[Environment], bool]
    keeper: str = ""

    def processes(self) -> tuple[int, ...]:
        """Their ids, but for the dead that nobody buried."""
        parents: dict[int, int] = {}
        ours: set[int] = set()
        keepers: set[int] = set()
        for pid, program, parent, environment in _living():
            parents[pid] = parent
            if self.is_ours(environment):
                ours.add(pid)
            if program == self.keeper:
                keepers.add(pid)
        ours |= keepers & {parents[pid] for pid in ours}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return tuple(sorted(ours - {os.getpid()}))

    def freeze(self) -> None:
        """Stop all processes; return when none can run, nor anything that one of them forked just before."""
        stopped: set[int] = set()
        before: set[int] | None = None  # whom the last look found, where all of them stood still
        for _ in self._rounds("stand still"):
            found = set(self.processes())
            for pid in found - stopped:
                _send(pid, signal.SIGSTOP)
            still = found <= stopped and all(_stands_still(pid) for pid in found)
            if still and found == before:
                return
            before = found if still else None
            stopped |= found

    def thaw(self) -> None:
        """Let a frozen machine run on."""
        for pid in self.processes():
            _send(pid, signal.SIGCONT)

    def cut_power(self) -> None:
        """End all processes in one instant, as far as they or anybody else can tell."""
        self.freeze()
        self.kill()

    def kill(self) -> None:
        """End all processes, one after the other."""
        for _ in self._rounds("end"):
            found = self.processes()
            if not found:
                return
            for pid in reversed(found):  # children first: who loses a parent while stopped is sent on by the kernel
                _send(pid, signal.SIGKILL)

    def _rounds(self, what: str) -> Iterator[None]:
        """Try again and again. Raises `NotReady` when patience is used up."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            yield
            time.sleep(ROUND_S)
        raise NotReady(f"{self.name}: processes {self.processes()} do not {what} within {PATIENCE_S:g} s")


def _living() -> Iterator[tuple[int, str, int, Environment]]:
    """Id, program, parent and environment of every process that is not dead."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent = _status(entry)
            if state != "Z":
                program = (entry / "comm").read_text().rstrip("\n")
                environment = frozenset((entry / "environ").read_bytes().split(b"\0"))
                yield int(entry.name), program, int(parent), environment


def _stands_still(pid: int) -> bool:
    """True where no thread, having been sent SIGSTOP, runs a program's code again (one that forks may wait in D)."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return all(_status(thread)[0] in "TtDZX" for thread in Path(f"/proc/{pid}/task").iterdir())
    return True  # gone


def _status(entry: Path) -> tuple[str, str]:
    """The state letter and the parent of a process or thread, by its folder in /proc."""
    state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
    return state, parent


def _send(pid: int, sig: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)
