"""Where the tasks of a job leave their tracks: small JSON files in the fence directory, each whole or not there.

``attempts/<token>/<host>-<pid>/`` belongs to one ``perdure exec``: ``heartbeat.json``, ``beats/`` (the program's),
``hang.json``, ``leave.json``, ``error.json`` (torchelastic's), ``last-breath.json`` and ``program.json``. But for the
last (`perdure.job.ended_well`) they say what happened and decide nothing; so they are not written through to the disk,
and a task goes on where they cannot be written.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.errors import InputError
from perdure.job.fence import KEPT_CLAIMS, remove_tree
from perdure.job.identity import Task

MAX_BYTES = 64 * 1024
GANG = "gang-"  # begins the names of directories that tasks of one step share (`perdure.job.gang`)
_FIX = "It is written by perdure exec or perdure agent; name another, or remove it"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The directory of one task."""

    directory: Path

    @classmethod
    def of(cls, fence: Path, token: int, task: Task) -> JobFiles:
        return cls(_attempts(fence) / str(token) / f"{task.host}-{task.pid}")

    @property
    def heartbeat(self) -> Path:
        return self.directory / "heartbeat.json"

    @property
    def beats(self) -> Path:
        return self.directory / "beats"

    @property
    def hang(self) -> Path:
        return self.directory / "hang.json"

    @property
    def error(self) -> Path:
        return self.directory / "error.json"

    @property
    def leave(self) -> Path:
        """With which exit code the program asked to end (`perdure.job.leave`)."""
        return self.directory / "leave.json"

    @property
    def exit_report(self) -> Path:
        return self.directory / "last-breath.json"

    @property
    def program(self) -> Path:
        """When its program began, and whether it ended well (`perdure.job.ended_well`)."""
        return self.directory / "program.json"

    @property
    def end_time(self) -> Path:
        """When the allocation ends: one for all tasks of a start."""
        return self.directory.parent / "end-time.json"

    @property
    def asked(self) -> Path:
        """What the service asks of the job: one for all tasks of a start."""
        return self.directory.parent / "asked.json"

    def make(self) -> None:
        """Make the directories; takes away those of attempts that are long over. Raises `OSError`."""
        self.beats.mkdir(parents=True, exist_ok=True)
        _prune(self.directory.parent)


def tasks(fence: Path) -> Iterator[JobFiles]:
    """The tracks of all tasks in a fence directory, those of the newest attempt first."""
    attempts = sorted(_numbered(_attempts(fence)), key=lambda path: -int(path.name))
    for attempt in attempts:
        with suppress(OSError):
            paths = (path for path in sorted(attempt.iterdir()) if not path.name.startswith(GANG))
            yield from (JobFiles(path) for path in paths if path.is_dir())


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Put a small object in place in one step. Raises `OSError`."""
    draft = path.with_name(f".{path.name}.{os.urandom(16).hex()}")
    try:
        draft.write_text(json.dumps(data))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_json(path: Path, schema: str, owners: Collection[int] | None = None, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The object that a task has left. Its writer is not trusted: no link is followed, and its size is bounded.

    With `owners` only files of these users are read. Raises `FileNotFoundError` where it is not there, `OSError` where
    it cannot be read, `InputError` where it is another's or not an object of this `schema` ("perdure.heartbeat/1").
    """
    data = small_file(path, limit, owners)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise InputError(str(path), "not JSON", _FIX) from err
    if not isinstance(found, dict) or found.get("schema") != schema:
        said = str(found.get("schema"))[:80] if isinstance(found, dict) else "no object"
        raise InputError(str(path), f"schema {said!r} is not {schema!r}", _FIX)
    return found


def small_file(path: Path, limit: int, owners: Collection[int] | None = None) -> bytes:
    """The bytes of a regular file of at most `limit`, of one of `owners` where they are named.

    Raises `OSError`, `InputError` for anything else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        if err.errno == errno.ELOOP:
            raise InputError(str(path), "a link", _FIX) from err
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)  # fdopen refuses a directory and leaves it open
        raise InputError(str(path), "not a regular file", _FIX)
    with os.fdopen(descriptor, "rb") as file:
        if owners is not None and status.st_uid not in owners:
            raise InputError(str(path), f"written by user {status.st_uid}, who is not believed", _FIX)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise InputError(str(path), f"more than {limit} bytes", _FIX)
    return data


def _prune(attempt: Path) -> None:
    for other in _numbered(attempt.parent):
        if int(other.name) <= int(attempt.name) - KEPT_CLAIMS:
            remove_tree(other)


def _numbered(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.name.isascii() and path.name.isdecimal()]
    except OSError:
        return []


def _attempts(fence: Path) -> Path:
    return fence / "attempts"
