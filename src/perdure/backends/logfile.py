"""Reading the end of a log that a job wrote: as its owner could, or not at all.

The path comes from a user, so it may be made to point anywhere. It is walked one component at a time without
following links, nothing but a regular file of the owner is read, and where the service is root the reading is done
by a process that has become the owner first.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from perdure.backends.protocol import TAIL_BYTES, LogTail
from perdure.errors import ClusterBusy, LogRefused, NotFound

HEAD_BYTES = 64 * 1024
MAX_LINKS = 16
_READER_TIMEOUT_S = 30.0
_NOBODY = 65534
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_tail(
    path: str | os.PathLike[str], owner_uid: int, max_bytes: int = TAIL_BYTES, head_bytes: int = HEAD_BYTES
) -> LogTail:
    """Read the last `max_bytes` of a file of `owner_uid`, and its first `head_bytes` where it is longer.

    Links are followed only where root made them in a directory in which, as in all above it, nobody else can
    write (``/var -> private/var``). Memory is bounded by what is asked for, whatever the file's size.

    Raises
    ------
    NotFound : there is no such file.
    LogRefused : it is no regular file, is reached through a link, belongs to somebody else, or the owner may
        not read it.
    ClusterBusy : the file system did not answer in time (only noticed where the reader is a process of its own).
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise NotFound(repr(text), "is no path of a log", "Look at the job's output option")
    if os.geteuid() == 0 and owner_uid != 0:
        return _read_as(text, owner_uid, max_bytes, head_bytes)
    return _read(text, owner_uid, max_bytes, head_bytes)


def _read(path: str, owner_uid: int, max_bytes: int, head_bytes: int) -> LogTail:
    try:
        descriptor = _open(path, owner_uid)
    except (FileNotFoundError, NotADirectoryError) as err:
        raise NotFound(path, "there is no such log", "It may have been moved or removed") from err
    except OSError as err:
        raise _refused(path, f"its owner cannot read it ({err.strerror})") from err
    try:
        size = os.fstat(descriptor).st_size
        tail = _read_range(descriptor, max(0, size - max_bytes), max_bytes)
        head = _read_range(descriptor, 0, min(head_bytes, size - max_bytes)) if size > max_bytes else b""
        disk = os.fstatvfs(descriptor)
    except OSError as err:
        raise _refused(path, f"reading fails ({err.strerror})") from err
    finally:
        os.close(descriptor)
    return LogTail(path, tail, head, max(0, size - max_bytes - len(head)), disk.f_bavail * disk.f_frsize)


def _read_range(descriptor: int, start: int, count: int) -> bytes:
    """Bytes from `start` on, at most `count`: fewer where the file has been cut meanwhile."""
    chunks, wanted = [], count
    while wanted > 0 and (chunk := os.pread(descriptor, wanted, start)):
        chunks.append(chunk)
        start, wanted = start + len(chunk), wanted - len(chunk)
    return b"".join(chunks)


@dataclass(slots=True)
class _Walk:
    """Where a walk stands: an open directory, what is left to walk, and whether only root could have laid the way."""

    directory: int
    rest: list[str]
    trusted: bool
    links: int = 0


def _open(path: str, owner_uid: int) -> int:
    """Walk to the file and open it. Raises `OSError` where that fails, `LogRefused` where it must not be."""
    if not path.startswith("/") or ".." in path.split("/"):
        raise _refused(path, "it is not an absolute path without '..'")
    with ExitStack() as opened:
        walk = _Walk(_enter(opened, "/", None), _components(path), trusted=True)
        walk.trusted = _only_root_writes(walk.directory)
        while walk.rest:
            name = walk.rest.pop(0)
            seen = os.stat(name, dir_fd=walk.directory, follow_symlinks=False)
            if stat.S_ISLNK(seen.st_mode):
                _follow(path, walk, name, seen, opened)
            elif walk.rest:
                walk.directory = _enter(opened, name, walk.directory)
                walk.trusted = walk.trusted and _only_root_writes(walk.directory)
            else:
                _check(path, seen, owner_uid)  # before opening: to open a device can do something
                return _open_checked(path, name, walk.directory, owner_uid)
    raise _refused(path, "it is a directory")


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _enter(opened: ExitStack, name: str, parent: int | None) -> int:
    descriptor = os.open(name, _WALK, dir_fd=parent)
    opened.callback(os.close, descriptor)
    return descriptor


def _only_root_writes(directory: int) -> bool:
    seen = os.fstat(directory)
    return seen.st_uid == 0 and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _follow(path: str, walk: _Walk, name: str, seen: os.stat_result, opened: ExitStack) -> None:
    walk.links += 1
    if not walk.trusted or seen.st_uid != 0 or walk.links > MAX_LINKS:
        raise _refused(path, f"{name!r} on the way is a link")
    target = os.readlink(name, dir_fd=walk.directory)
    if ".." in target.split("/"):
        raise _refused(path, f"the link {name!r} on the way leads upward")
    if target.startswith("/"):
        walk.directory = _enter(opened, "/", None)
    walk.rest = [*_components(target), *walk.rest]


def _open_checked(path: str, name: str, directory: int, owner_uid: int) -> int:
    descriptor = os.open(name, _READ, dir_fd=directory)
    try:
        _check(path, os.fstat(descriptor), owner_uid)  # what was opened may be another file than what was seen
    except LogRefused:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: str, seen: os.stat_result, owner_uid: int) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise _refused(path, f"it is a {_kind(seen.st_mode)}, not a regular file")
    if seen.st_uid != owner_uid:
        raise _refused(path, f"it belongs to user {seen.st_uid}, the job to user {owner_uid}")


def _kind(mode: int) -> str:
    tests: tuple[tuple[Callable[[int], bool], str], ...] = (
        (stat.S_ISDIR, "directory"),
        (stat.S_ISLNK, "link"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
    )
    return next((name for test, name in tests if test(mode)), "device")


def _refused(path: str, what: str) -> LogRefused:
    return LogRefused(path, f"this log is not read: {what}", "Let the job write a plain file of its owner")


# Reading as somebody else: a fresh process, for a fork of a service with threads may hang.

_READER = (
    "import sys; sys.path.insert(0, sys.argv[1]); import perdure.backends.logfile as m; m.reader_main(sys.argv[2:])"
)


def _read_as(path: str, owner_uid: int, max_bytes: int, head_bytes: int) -> LogTail:
    root = str(Path(__file__).resolve().parents[2])
    arguments = [root, path, str(owner_uid), str(max_bytes), str(head_bytes)]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _READER, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_READER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        raise ClusterBusy(path, "the file system does not answer", "Ask again") from err
    first, _, data = done.stdout.partition(b"\n")
    if done.returncode != 0 or not first:
        raise ClusterBusy(path, f"the reader ended with code {done.returncode}", "Ask again")
    answer = json.loads(first)
    if answer["error"]:
        kind = NotFound if answer["error"] == NotFound.__name__ else LogRefused
        raise kind(*answer["args"])
    head, tail = data[: answer["head"]], data[answer["head"] :]
    return LogTail(path, tail, head, answer["skipped"], answer["free"])


def reader_main(argv: list[str]) -> None:
    """Become the owner for good, read, and write what was read to standard output."""
    path, uid, max_bytes, head_bytes = argv[0], int(argv[1]), int(argv[2]), int(argv[3])
    _become(uid)
    try:
        log = _read(path, uid, max_bytes, head_bytes)
        answer = {"error": "", "head": len(log.head), "skipped": log.skipped, "free": log.free_bytes}
        data = log.head + log.tail
    except (NotFound, LogRefused) as err:
        answer, data = {"error": type(err).__name__, "args": err.args}, b""
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + data)


def _become(uid: int) -> None:
    try:
        entry = pwd.getpwuid(uid)
        gid, groups = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        gid, groups = _NOBODY, []
    os.setgroups(groups)
    if sys.platform == "linux":
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    else:
        os.setgid(gid)  # as root these set the saved ids too
        os.setuid(uid)
