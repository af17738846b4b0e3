"""Files and directories that are there after a power cut: what was written is synced, and so is the directory it is in.

A file system may keep a file's bytes and lose its name, or the other way round, until both were synced.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import takewhile
from pathlib import Path


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Put a file in place: whoever reads finds all of it or what was there before, after a power cut too.

    Raises `OSError`.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(16).hex()}")
    try:
        write_new(draft, data, mode)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file that must not be there yet. Its name is there for good once the directory is synced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def make_directory(path: Path, mode: int = 0o777) -> None:
    """Make a directory, and those above it that are missing. Raises `OSError`."""
    missing = list(takewhile(lambda each: not each.exists(), (path, *path.parents)))
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for each in missing:
        with suppress(PermissionError):  # one may make a directory where one may not list what is there
            sync_directory(each.parent)


def sync_file(path: Path) -> None:
    """From now on what is in it is there after a power cut, where its name is. Raises `OSError`."""
    _sync(path, 0)


def sync_directory(path: Path) -> None:
    """From now on the names in it are there after a power cut, and what was removed is gone. Raises `OSError`."""
    _sync(path, os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
