"""Power cuts under files: what is left of a directory, once all that was not synced may be lost.

Of a file there is for sure what it held when it was last synced, of a directory the names that it had when it was; what
came since may be there or not, and a name may be there before its bytes are. So a cut may leave three trees, of which
each must keep what was promised: nothing of what came since, the names alone, the bytes alone. (`tests.crash.power`
does the same beneath SQLite, whose syncs this does not see.)

What is synced is learnt where `os.fsync` is called. The power may fail before each sync, and before each file or
directory comes, goes or gets another name.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.symlink", "os.truncate")

Tree = dict[str, bytes | None]
"""What is left, by path below the root; None is a directory."""


@dataclass(slots=True)
class WatchedFiles:
    """The files below `root` as the power may leave them."""

    root: Path
    names: dict[int, dict[str, int]] = field(default_factory=dict)  # of each directory as it was synced, by inode
    held: dict[int, bytes] = field(default_factory=dict)  # by each file as it was synced, by inode
    directories: set[int] = field(default_factory=set)
    cuts: list[Tree] = field(default_factory=list)  # what cuts on the way would have left
    _kept: dict[int, int] = field(default_factory=dict)  # open descriptors: an inode is not given to another meanwhile

    def settle(self) -> None:
        """All that is there now is synced."""
        for where, _, files in os.walk(self.root):
            for path in (where, *(os.path.join(where, name) for name in files)):
                self._open_and(path, self.sync)

    def sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._keep(descriptor, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            self.names[status.st_ino] = self._names_in(f"/proc/self/fd/{descriptor}")
        elif stat.S_ISREG(status.st_mode):
            self.held[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def fail(self) -> None:
        """The power may fail here."""
        self.cuts += self.left()

    def left(self) -> list[Tree]:
        """What a cut now may leave."""
        names, held = self._now()
        return [self._tree(self.names, self.held), self._tree(names, self.held), self._tree(self.names, held)]

    def close(self) -> None:
        for descriptor in self._kept.values():
            os.close(descriptor)

    def _now(self) -> tuple[dict[int, dict[str, int]], dict[int, bytes]]:
        names: dict[int, dict[str, int]] = dict(self.names)
        held = dict(self.held)
        for where, _, files in os.walk(self.root):
            names[os.stat(where).st_ino] = self._names_in(where)
            for name in files:
                self._open_and(os.path.join(where, name), lambda d: held.update({os.fstat(d).st_ino: _bytes_of(d)}))
        return names, held

    def _tree(self, names: dict[int, dict[str, int]], held: dict[int, bytes]) -> Tree:
        found: Tree = {}

        def walk(inode: int, below: str) -> None:
            for name, other in names.get(inode, {}).items():
                is_directory = other in self.directories
                found[below + name] = None if is_directory else held.get(other, b"")
                if is_directory:
                    walk(other, f"{below}{name}/")

        walk(self.root.stat().st_ino, "")
        return found

    def _names_in(self, where: str) -> dict[str, int]:
        found = {}
        with os.scandir(where) as entries:
            for entry in entries:
                found[entry.name] = entry.inode()
                if entry.is_dir(follow_symlinks=False):
                    self.directories.add(entry.inode())
        return found

    def _keep(self, descriptor: int, inode: int) -> None:
        if inode not in self._kept:
            self._kept[inode] = os.dup(descriptor)

    def _open_and(self, path: str, act: Callable[[int], object]) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            act(descriptor)
        finally:
            os.close(descriptor)


def _bytes_of(descriptor: int) -> bytes:
    return Path(f"/proc/self/fd/{descriptor}").read_bytes()


_watched: list[WatchedFiles] = []  # a hook of the interpreter's cannot be taken off
_is_hooked = False


@contextmanager
def watched(root: Path) -> Iterator[WatchedFiles]:
    """Watch what this process writes below `root`, of which all that is there now is synced."""
    global _is_hooked
    if not _is_hooked:
        sys.addaudithook(_changes)
        _is_hooked = True
    files, fsync = WatchedFiles(root), os.fsync

    def synced(descriptor: int) -> None:
        files.fail()
        files.sync(descriptor if isinstance(descriptor, int) else descriptor.fileno())
        fsync(descriptor)

    files.settle()
    _watched.append(files)
    os.fsync = synced  # type: ignore[assignment]
    try:
        yield files
    finally:
        os.fsync = fsync
        _watched.remove(files)
        files.close()


def _changes(event: str, arguments: tuple[Any, ...]) -> None:
    makes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_CREAT | os.O_TRUNC)
    if _watched and (makes or event in CHANGES):
        found = _watched.pop()  # what it reads is no change
        try:
            found.fail()
        finally:
            _watched.append(found)


def put(tree: Tree, where: Path) -> Path:
    """Make a directory of what was left."""
    where.mkdir(mode=0o700)
    for name, data in tree.items():
        path = where / name
        if data is None:
            path.mkdir(mode=0o700)
        else:
            path.write_bytes(data)
            path.chmod(0o600)
    return where
