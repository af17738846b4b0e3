"""JSON text as it is packed in a column: deflated against `packed_words.txt`, which has what events have in common.

The packed form is a byte that names the words, then raw deflate (RFC 1951). The words belong to what is stored: other
words need a file and a byte of their own. What older versions wrote is the text itself, which begins with a brace.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

from perdure.errors import StateError

WORDS_1 = b"\1"
MAX_BYTES = 64 << 20  # of the text of one value; a packed bomb in a damaged journal ends here
_PLAIN = b"{"
_LEVEL = 6
_WINDOW = 13  # 2**13 bytes hold the words and a value; a packer of this size is copied in microseconds
_MEMORY = 6


def pack(text: str) -> bytes:
    """Text as it is stored.

    >>> unpack(pack('{"kind":"job_gone"}'))
    '{"kind":"job_gone"}'
    """
    packer = _packer().copy()
    return WORDS_1 + packer.compress(text.encode()) + packer.flush()


def unpack(stored: bytes) -> str:
    """What was packed. Raises `StateError` where it was damaged."""
    if stored[:1] == _PLAIN:
        return stored.decode()
    reader = zlib.decompressobj(-zlib.MAX_WBITS, _words())
    try:
        text = reader.decompress(stored[1:], MAX_BYTES) if stored[:1] == WORDS_1 else b""
        if reader.eof:
            return text.decode()
    except (zlib.error, ValueError):
        pass
    raise StateError("the journal", "a stored value cannot be unpacked", "Restore it from a backup")


@cache
def _words() -> bytes:
    return Path(__file__).with_name("packed_words.txt").read_bytes()


@cache
def _packer() -> zlib._Compress:
    """What has taken the words in once; each value is packed by a copy."""
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -_WINDOW, _MEMORY, zdict=_words())
