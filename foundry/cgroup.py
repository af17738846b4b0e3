"""Control groups that bound what a program and its neighbours may take, of either version."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LIMIT = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A control group that exists."""

    path: Path

    @staticmethod
    def _parent(controller: str) -> Path:
        return ROOT / controller if (ROOT / controller).is_dir() else ROOT

    @classmethod
    def lacks(cls, controller: str) -> str:
        """Why no group of this controller can be made; "" where it can."""
        try:
            with cls.made(controller, f"foundry-try-{os.getpid()}", 1 << 20):
                return ""
        except OSError as err:
            return f"no control group for {controller} ({err})"

    @classmethod
    @contextmanager
    def made(cls, controller: str, name: str, limit: int) -> Iterator[Cgroup]:
        """A group that lasts as long as the context; `limit` in bytes or processes."""
        parent = cls._parent(controller)
        path = parent / name
        path.mkdir()
        try:
            (path / LIMIT[controller][0 if parent != ROOT else 1]).write_text(str(limit))
            yield cls(path)
        finally:
            _remove(path)

    def take(self, pid: int) -> None:
        """Put a process, and its children from now on, into the group."""
        (self.path / "cgroup.procs").write_text(str(pid))


def _remove(path: Path, patience_s: float = 10.0) -> None:
    """Remove a group as soon as its last process is gone."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return path.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
