"""Many logs in one file: JSON lines of ``{"id", "text"}``, read one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from perdure.errors import InputError

MAX_RECORD_BYTES = 64 * 1024 * 1024
FIX = 'Write one JSON object a line: {"id": ..., "text": "the log"}'


def read_batch(file: BinaryIO, source: str) -> Iterator[tuple[str | int, bytes]]:
    """Yield the id and the log of each record; empty lines are passed over, further keys ignored.

    Holds one record at a time. Raises `InputError`, naming the line, at the first that breaks the format.
    """
    number = 0
    while line := file.readline(MAX_RECORD_BYTES + 1):
        number += 1
        where = f"{source}:{number}"
        if len(line) > MAX_RECORD_BYTES:
            raise InputError(where, f"longer than {MAX_RECORD_BYTES >> 20} MiB", "Keep the end of the log only")
        if line.strip():
            yield _record(line, where)


def _record(line: bytes, where: str) -> tuple[str | int, bytes]:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise InputError(where, f"not JSON ({_first_line(err)})", FIX) from err
    if not isinstance(found, dict):
        raise InputError(where, "not a JSON object", FIX)
    for key, kinds in (("id", (str, int)), ("text", (str,))):
        if key not in found:
            raise InputError(where, f"no {key!r}", FIX)
        if not isinstance(found[key], kinds) or isinstance(found[key], bool):
            raise InputError(where, f"{key!r} is not {'a text or a whole number' if key == 'id' else 'a text'}", FIX)
    return found["id"], found["text"].encode("utf-8", "replace")  # JSON can spell half of a surrogate pair


def _first_line(err: Exception) -> str:
    return (str(err).splitlines() or [type(err).__name__])[0]
