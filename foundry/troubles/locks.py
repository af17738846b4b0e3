"""Troubles of sharing: what another process holds, or has left behind."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import shared_memory
from pathlib import Path

from foundry.troubles.setting import Setting, Trouble, calm


@contextmanager
def lock_held(directory: Path, present: bool) -> Iterator[Setting]:
    path = directory / "cache.lock"
    with path.open("w") as holder:
        if present:
            fcntl.flock(holder, fcntl.LOCK_EX)
        yield {"LOCK": str(path)}, calm


@contextmanager
def lock_file(directory: Path, present: bool) -> Iterator[Setting]:
    path = directory / "in-use.lock"
    path.unlink(missing_ok=True)
    if present:
        path.touch()
    yield {"LOCK": str(path)}, calm


@contextmanager
def database_locked(directory: Path, present: bool) -> Iterator[Setting]:
    path = directory / "study.db"
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("CREATE TABLE IF NOT EXISTS trials (x)")
        if present:
            other.execute("BEGIN EXCLUSIVE")
        yield {"DATABASE": str(path)}, calm
    finally:
        other.close()


@contextmanager
def segment_left(_directory: Path, present: bool) -> Iterator[Setting]:
    name = f"shard{os.getpid()}"
    if not present:
        yield {"SEGMENT": name}, calm
        return
    block = shared_memory.SharedMemory(name, create=True, size=64)
    try:
        yield {"SEGMENT": name}, calm
    finally:
        block.close()
        block.unlink()


TROUBLES: dict[str, Trouble] = {
    "lock-held": lock_held,
    "lock-file": lock_file,
    "database-locked": database_locked,
    "shared-memory": segment_left,
}
