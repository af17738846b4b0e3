"""Opening what a job wrote: as its owner could, or not at all.

The path comes from a user, so it may be made to point anywhere. It is walked one component at a time without
following links of others, and nothing but a regular file of the owner is opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from perdure.errors import LogRefused

MAX_LINKS = 16
MAX_STEPS = 256  # components walked, those of links included: each keeps a directory open
NOT_READ = "this log is not read: "
_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_log(path: str, owner_uid: int) -> int:
    """Open a regular file of `owner_uid` for reading.

    Links are followed where root made them in a directory in which, as in all above it, nobody else can write
    (``/var -> private/var``); and those of the owner where this process has the owner's rights and no more. Raises
    `OSError` where that fails, `LogRefused` where it must not be: it is not a regular file, is reached through another
    link, or belongs to somebody else.
    """
    follows = owner_uid if owner_uid == os.geteuid() else 0
    with _walked(path, last_is_directory=False, follows=follows) as (directory, name):
        if not name:
            raise refused(path, "it is a directory")
        seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
        _check(path, seen, owner_uid)  # before opening: to open a device can do something
        return _open_checked(path, name, directory, owner_uid)


@contextmanager
def listed(path: str) -> Iterator[int]:
    """A directory, open to be listed; it may be anybody's. Raises as `open_log` does."""
    with _walked(path, last_is_directory=True) as (directory, _):
        descriptor = os.open(".", _LIST, dir_fd=directory)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def listed_below(parent: int, name: str) -> Iterator[int]:
    """A directory in one that is open; a link to one is refused. Raises `OSError`."""
    descriptor = os.open(name, _LIST, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class _Walk:
    """Where a walk stands: the open directories that it came through, from the root on, and what is left to walk.

    Of each directory it is known whether only root could have laid the way to it. ``..`` leads to the one before, as
    no link is among them.
    """

    way: list[tuple[int, bool]]
    rest: list[str]
    links: int = 0
    steps: int = 0

    def next_name(self, path: str) -> str:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise refused(path, f"it leads through more than {MAX_STEPS} directories and links")
        return self.rest.pop(0)

    @property
    def directory(self) -> int:
        return self.way[-1][0]

    @property
    def trusted(self) -> bool:
        return self.way[-1][1]


@contextmanager
def _walked(path: str, last_is_directory: bool, follows: int = 0) -> Iterator[tuple[int, str]]:
    """The directory that a path leads to; or the one before its last component, and the name of that.

    `follows`: links of this user are followed; 0: of nobody but root.
    """
    if not path.startswith("/") or "\0" in path:
        raise refused(path, "it is not an absolute path")
    with ExitStack() as opened:
        root = _enter(opened, "/", None)
        walk = _Walk([(root, _only_root_writes(root))], _components(path))
        while walk.rest:
            name = walk.next_name(path)
            if name == "..":
                walk.way = walk.way[:-1] or walk.way
                continue
            seen = os.stat(name, dir_fd=walk.directory, follow_symlinks=False)
            if stat.S_ISLNK(seen.st_mode):
                _follow(path, walk, name, seen, follows)
            elif walk.rest or last_is_directory:
                below = _enter(opened, name, walk.directory)
                walk.way.append((below, walk.trusted and _only_root_writes(below)))
            else:
                yield walk.directory, name
                return
        yield walk.directory, ""


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _enter(opened: ExitStack, name: str, parent: int | None) -> int:
    descriptor = os.open(name, _WALK, dir_fd=parent)
    opened.callback(os.close, descriptor)
    return descriptor


def _only_root_writes(directory: int) -> bool:
    seen = os.fstat(directory)
    return seen.st_uid == 0 and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _follow(path: str, walk: _Walk, name: str, seen: os.stat_result, follows: int) -> None:
    walk.links += 1
    may_be_followed = (walk.trusted and seen.st_uid == 0) or (follows and seen.st_uid == follows)
    if not may_be_followed or walk.links > MAX_LINKS:
        raise refused(path, f"{name!r} on the way is a link")
    target = os.readlink(name, dir_fd=walk.directory)
    if target.startswith("/"):
        walk.way = walk.way[:1]
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
        raise refused(path, f"it is a {_kind(seen.st_mode)}, not a regular file")
    if seen.st_uid != owner_uid:
        raise refused(path, f"it belongs to user {seen.st_uid}, the job to user {owner_uid}")


def _kind(mode: int) -> str:
    tests: tuple[tuple[Callable[[int], bool], str], ...] = (
        (stat.S_ISDIR, "directory"),
        (stat.S_ISLNK, "link"),
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
    )
    return next((name for test, name in tests if test(mode)), "device")


def refused(path: str, what: str) -> LogRefused:
    """The error for what must not be read."""
    return LogRefused(path, NOT_READ + what, "Let the job write a plain file of its owner")
