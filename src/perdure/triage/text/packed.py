"""Compressed logs, unpacked as they are read: never more than a piece in memory, whatever they unpack to."""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol, cast

from perdure.errors import InputError, LogRefused

PIECE_BYTES, PACKED_BYTES = 1 << 20, 64 << 10
MAX_UNPACKED_BYTES = 64 << 30
MAX_WORKSPACE_BYTES = 160 << 20
"""Of a decompressor: some formats let a file ask for gigabytes."""


class CutShort(Exception):
    """The compressed data end in their middle, or are damaged from here on."""


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib's decompressor in the form of the others."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._unpacker.eof

    @property
    def needs_input(self) -> bool:
        return not self._unpacker.unconsumed_tail and not self._unpacker.eof

    @property
    def unused_data(self) -> bytes:
        return self._unpacker.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._unpacker.decompress(self._unpacker.unconsumed_tail + data, max_length)


def _zstd() -> _Unpacker:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return cast("_Unpacker", zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}))


_WINDOW_LOG = 27  # 128 MiB: what zstd itself needs no --long for
_FORMATS: dict[bytes, Callable[[], _Unpacker]] = {
    b"\x1f\x8b\x08": _Gzip,
    b"\x28\xb5\x2f\xfd": _zstd,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=MAX_WORKSPACE_BYTES),
}
_MAGIC_BYTES = max(map(len, _FORMATS))


def unpacked(read: Callable[[int], bytes], name: str, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """Yield what a file or stream holds in pieces, unpacked where it is compressed; `read` gives at most this many
    bytes.

    Raises `CutShort` behind the last good piece where compressed data end early or are damaged, `InputError` where
    nothing of them can be read, and `LogRefused` beyond `MAX_UNPACKED_BYTES`.
    """
    start = _at_least_magic(b"", read)
    if _format_of(start) is not None:
        yield from _bounded(_members(start, read, name, piece_bytes), name)
        return
    if start:
        yield start
    while piece := read(piece_bytes):
        yield piece


def _bounded(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_UNPACKED_BYTES:
            what = f"unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB"
            raise LogRefused(name, what, "Unpack its end yourself: gzip -dc FILE | tail -c 16M | perdure why -")
        yield piece


def _members(data: bytes, read: Callable[[int], bytes], name: str, piece_bytes: int) -> Iterator[bytes]:
    """Unpack one member after the other; what follows the last member is skipped, as gzip does."""
    read_any = False
    try:
        while (new := _format_of(data)) is not None:
            unpacker = new()
            while not unpacker.eof:
                if unpacker.needs_input and not data and not (data := read(PACKED_BYTES)):
                    raise EOFError("it ends too early")
                piece, data = unpacker.decompress(data, piece_bytes), b""
                read_any = read_any or bool(piece)
                if piece:
                    yield piece
            data = _at_least_magic(unpacker.unused_data, read)
    except Exception as err:  # each library has its own, and what they read is anybody's
        if not read_any:
            raise InputError(name, f"is compressed, and cannot be unpacked ({err})", "Name an undamaged file") from err
        raise CutShort from err


def _format_of(start: bytes) -> Callable[[], _Unpacker] | None:
    return next((new for magic, new in _FORMATS.items() if start.startswith(magic)), None)


def _at_least_magic(data: bytes, read: Callable[[int], bytes]) -> bytes:
    """The bytes, and as many more as show the format; fewer at the end."""
    while len(data) < _MAGIC_BYTES and (more := read(_MAGIC_BYTES - len(data))):
        data += more
    return data


def is_packed(start: bytes) -> bool:
    """True where these first bytes are those of a format that is unpacked."""
    return _format_of(start) is not None
