"""Power cuts: what a disk holds of the journal's files at an instant, once all that was not synced may be lost.

A layer under SQLite (a VFS, by ctypes) sees every write and sync. At random ones the power fails: of each file there is
left what was synced, and of the writes since then any part, in any order, torn at sectors. What is read back must be
the last state that was acknowledged, or the one that was being written, and nothing between or before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int64, c_void_p, cast, sizeof, string_at
from dataclasses import dataclass, field
from random import Random

SECTOR = 512
NAME = b"perdure-power"

_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_DELETE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_CLOSE = CFUNCTYPE(c_int, c_void_p)
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)


class _Vfs(Structure):
    """``sqlite3_vfs`` of sqlite3.h."""

    _fields_ = [
        ("version", c_int), ("file_size", c_int), ("longest_path", c_int), ("next", c_void_p), ("name", c_char_p),
        ("data", c_void_p), ("open", c_void_p), ("delete", c_void_p),
        *((name, c_void_p) for name in (
            "access", "full_path", "dl_open", "dl_error", "dl_sym", "dl_close", "randomness", "sleep", "time",
            "last_error", "time64", "set_call", "get_call", "next_call",
        )),
    ]  # fmt: skip


class _Methods(Structure):
    """``sqlite3_io_methods`` of sqlite3.h."""

    _fields_ = [
        ("version", c_int),
        *((name, c_void_p) for name in (
            "close", "read", "write", "truncate", "sync", "size", "lock", "unlock", "check_lock", "control", "sector",
            "characteristics", "shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch",
        )),
    ]  # fmt: skip


@dataclass(slots=True)
class _File:
    """What is surely on the disk, and what is on its way there: bytes at an offset, or None for a cut to that size."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.synced, *change)
        self.pending.clear()

    def after_cut(self, rng: Random) -> bytes:
        """One of the contents that it may have once the power is back."""
        left = bytearray(self.synced)
        for offset, data in self.pending:
            fate = rng.random()
            if fate < 0.4:
                continue
            if data is not None and fate < 0.6 and len(data) > SECTOR:
                data = data[: SECTOR * rng.randrange(1, -(-len(data) // SECTOR))]
            _apply(left, offset, data)
        return bytes(left)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


@dataclass(frozen=True, slots=True)
class Cut:
    """The files as a power cut left them, and how many states of the journal had been acknowledged by then."""

    files: dict[str, bytes]
    acknowledged: int


class PowerSupply:
    """Watches all files that SQLite opens in this process, and keeps what would be left of them at `cuts`."""

    def __init__(self, rng: Random, most: int) -> None:
        """It fails at a `share` of all writes and syncs, at most `most` times."""
        self.files: dict[str, _File] = {}
        self.cuts: list[Cut] = []
        self.acknowledged = 0
        self.share = 0.0
        self._rng, self._most = rng, most
        self._open: dict[int, tuple[str, _Methods]] = {}
        self._lib = _sqlite()
        default = cast(self._lib.sqlite3_vfs_find(None), POINTER(_Vfs)).contents
        self._vfs = _Vfs()
        ctypes.memmove(byref(self._vfs), byref(default), sizeof(_Vfs))
        self._vfs.name = NAME
        self._default_open, self._default_delete = _OPEN(default.open), _DELETE(default.delete)
        self._calls = (_OPEN(self._opened), _DELETE(self._deleted), _CLOSE(self._closed), _WRITE(self._written),
                       _TRUNCATE(self._truncated), _SYNC(self._synced))  # fmt: skip
        self._vfs.open, self._vfs.delete = (cast(call, c_void_p).value for call in self._calls[:2])
        self._methods: dict[int, _Methods] = {}  # ours, by the address of those that they stand before

    @contextmanager
    def on(self) -> Iterator[PowerSupply]:
        self._lib.sqlite3_vfs_register(byref(self._vfs), 1)
        try:
            yield self
        finally:
            self._lib.sqlite3_vfs_unregister(byref(self._vfs))

    def _opened(self, vfs: int, name: int, file: int, flags: int, out: int) -> int:
        code = self._default_open(vfs, name, file, flags, out)
        place = cast(file, POINTER(c_void_p))
        if code == 0 and name and place[0]:
            path = string_at(name).decode()
            theirs = cast(place[0], POINTER(_Methods)).contents
            self.files.setdefault(path, _File())
            self._open[file] = (path, theirs)
            place[0] = ctypes.addressof(self._standing_before(place[0], theirs))
        return code

    def _standing_before(self, address: int, theirs: _Methods) -> _Methods:
        if address not in self._methods:
            ours = _Methods()
            ctypes.memmove(byref(ours), byref(theirs), sizeof(_Methods))
            for name, call in zip(("close", "write", "truncate", "sync"), self._calls[2:], strict=True):
                setattr(ours, name, cast(call, c_void_p).value)
            self._methods[address] = ours
        return self._methods[address]

    def _deleted(self, vfs: int, name: int, sync: int) -> int:
        self.files.pop(string_at(name).decode(), None)
        return self._default_delete(vfs, name, sync)

    def _closed(self, file: int) -> int:
        _, theirs = self._open.pop(file)
        return _CLOSE(theirs.close)(file)

    def _written(self, file: int, data: int, size: int, offset: int) -> int:
        path, theirs = self._open[file]
        self.files[path].pending.append((offset, string_at(data, size)))
        self._fail_perhaps()
        return _WRITE(theirs.write)(file, data, size, offset)

    def _truncated(self, file: int, size: int) -> int:
        path, theirs = self._open[file]
        self.files[path].pending.append((size, None))
        return _TRUNCATE(theirs.truncate)(file, size)

    def _synced(self, file: int, flags: int) -> int:
        path, theirs = self._open[file]
        self._fail_perhaps()
        self.files[path].sync()
        return _SYNC(theirs.sync)(file, flags)

    def _fail_perhaps(self) -> None:
        if len(self.cuts) >= self._most or self._rng.random() >= self.share:
            return
        left = {path: file.after_cut(self._rng) for path, file in self.files.items()}
        self.cuts.append(Cut(left, self.acknowledged))


def _sqlite() -> ctypes.CDLL:
    """The library that Python's own sqlite3 uses. Raises `OSError` where it is built in."""
    import _sqlite3

    lib = ctypes.CDLL(_sqlite3.__file__)  # finds the names of all that it is linked to
    try:
        lib.sqlite3_vfs_find.restype = c_void_p
    except AttributeError as err:
        raise OSError("SQLite is built into Python") from err
    return lib
