"""JSON that anybody may have written: one document, one a line, many one after the other, or some within a log.

All of it takes time in proportion to the text, save for what `MAX_UNREADABLE` bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.errors import InputError

MAX_UNREADABLE = 1000  # lines in a file; with more it is another format
MAX_DOCUMENTS = 250_000
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n\x1e,"  # \x1e opens each text of a JSON text sequence, RFC 7464


def documents(text: str, where: str) -> Iterator[Any]:
    """Yield each object and list; None for a line that holds none.

    A line may have other text before its first brace, as a line of a log does. Raises `InputError` for what is nested
    too deeply, for more than `MAX_DOCUMENTS`, for more than `MAX_UNREADABLE` lines without one, and where finding the
    next beginning would take too long.
    """
    unreadable = wasted = 0
    for number, (value, failed) in enumerate(_attempts(text, where)):
        wasted += failed
        unreadable += value is None
        if unreadable > MAX_UNREADABLE or wasted > 4 * len(text):
            raise InputError(where, "most of it is not JSON", "Send it as the program wrote it")
        if number >= MAX_DOCUMENTS:
            raise InputError(where, f"holds more than {MAX_DOCUMENTS} documents", "Send it in parts")
        yield value


def whole(text: str) -> Mapping[str, Any] | None:
    """The one object that the text is, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def logged(text: str, words: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects that end lines of a log, of the lines that hold one of `words`. Others are passed over."""
    for line in text.splitlines():
        if any(word in line for word in words) and (value := whole(line[line.find("{") :])) is not None:
            yield value


def _attempts(text: str, where: str) -> Iterator[tuple[Any, int]]:
    """What was found at each place where a document may begin, and how many characters were read without success."""
    at = end = 0
    while (at := _next(text, at)) < len(text):
        if at >= end:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
        begin = at if text[at] in "{[" else text.find("{", at, end)
        if begin < 0:
            at = end
            yield None, 0
            continue
        try:
            value, at = _decode(text, begin, end)
        except RecursionError as err:
            raise InputError(where, "its JSON is nested too deeply", "Send it as the program wrote it") from err
        except ValueError as err:
            at = end
            yield None, getattr(err, "pos", end) - begin
        else:
            yield value, 0


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _decode(text: str, at: int, end: int) -> tuple[Any, int]:
    """Read the document at `at`; where a list cannot be read, the first object in it. Raises `ValueError`."""
    try:
        return _DECODER.raw_decode(text, at)
    except ValueError:
        brace = text.find("{", at, end)
        if text[at] == "{" or brace < 0:
            raise
        return _DECODER.raw_decode(text, brace)
