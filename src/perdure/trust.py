"""Whose files these are: a state directory or a secret that somebody else can change is not used.

Secrets are read and written here alone.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from perdure.durable import make_directory, write_whole
from perdure.errors import StateError

_OTHERS_MAY_WRITE = 0o022
_TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in its place holds nobody up


def check_directory(path: Path) -> None:
    """Raises `StateError` for a directory that somebody else owns, may write to or replace, or has put a file into.

    What root owns is trusted. `OSError` where it cannot be looked at.
    """
    named, real = path.absolute(), path.resolve()
    for place in sorted({named, *named.parents, real, *real.parents}):
        _check_place(place, place.lstat(), shared=place not in (named, real))
    with os.scandir(real) as entries:
        for entry in entries:
            if not is_ours(entry.stat(follow_symlinks=False)):
                raise StateError(entry.path, "belongs to another user", "Remove it, unless you know whose it is")


def _check_place(place: Path, found: os.stat_result, *, shared: bool) -> None:
    """A directory above may be open to all, as /tmp is, where nobody can rename what is another's in it."""
    if not is_ours(found):
        raise StateError(str(place), "belongs to another user", "Name a directory of your own with --state DIR")
    is_safe = stat.S_ISLNK(found.st_mode) or (shared and found.st_mode & stat.S_ISVTX)
    if found.st_mode & _OTHERS_MAY_WRITE and not is_safe:
        raise StateError(str(place), "others may write to it", f"Look at what is in it, then chmod go-w {place}")


def check_secret(path: Path, found: os.stat_result) -> None:
    """Raises `StateError` for an open file that others may read, or that is not ours or the directory's owner's."""
    if not is_ours(found) and found.st_uid != path.parent.stat().st_uid:
        raise StateError(str(path), "belongs to another user", "Remove it, unless you know whose it is")
    if found.st_mode & 0o077:
        raise StateError(str(path), "others may read it", f"chmod 600 {path}")


def read_secret(path: Path, max_bytes: int) -> Any:
    """The JSON of a file that only we can have written. Raises as `read_secret_text` does."""
    return json.loads(read_secret_text(path, max_bytes))


def read_secret_text(path: Path, max_bytes: int) -> str:
    """The text of a file that only we can have written.

    Raises `FileNotFoundError`, `ValueError` for what is not UTF-8, `StateError` for what others may read or made.
    """
    try:
        with os.fdopen(os.open(path, _TO_READ), "rb") as file:
            check_secret(path, os.fstat(file.fileno()))
            return file.read(max_bytes).decode("utf-8")
    except FileNotFoundError:
        raise
    except OSError as err:
        raise StateError(str(path), f"cannot be read: {err.strerror}", "Fix its permissions") from err


def write_secret(path: Path, value: Any) -> None:
    """Replace a file by JSON that nobody else may read; it survives a power cut. Raises `StateError`."""
    try:
        write_whole(path, json.dumps(value, indent=1).encode(), 0o600)
    except OSError as err:
        raise StateError(str(path), f"cannot be written: {err.strerror}", "Fix its permissions") from err


def is_ours(found: os.stat_result) -> bool:
    """Whether nobody but this user and root made it."""
    return found.st_uid in (0, os.geteuid())


def state_dir(path: Path) -> Path:
    """Make the state directory, for its owner alone. Raises `StateError` where it cannot be used, or others may."""
    try:
        make_directory(path, 0o700)
        check_directory(path)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as err:
        raise StateError(str(path), f"cannot be written: {err.strerror}", "Name another with --state DIR") from err
    return path
