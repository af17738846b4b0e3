"""JSON that anybody may have written: one document, one a line, or many one after the other, in bounded time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perdure.errors import InputError

MAX_UNREADABLE = 1000  # lines in a file; with more it is another format
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n\x1e,"  # \x1e opens each text of a JSON text sequence, RFC 7464


def documents(text: str, where: str, in_a_log: bool = False) -> Iterator[Any]:
    """Yield each document; None for a line that holds none, which in a log is as it should be and passed over.

    A line may have other text before its first brace, as a line of a log does. Raises `InputError` for what is nested
    too deeply, for more than `MAX_UNREADABLE` such lines, and where finding the next beginning would take too long.
    """
    at = unreadable = wasted = 0
    while (at := _next(text, at)) < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if in_a_log and text.find("{", at, end) < 0:
            at = end
            continue
        try:
            value, at = _decode(text, at, end)
        except RecursionError as err:
            raise InputError(where, "its JSON is nested too deeply", "Send it as the program wrote it") from err
        except ValueError as err:
            unreadable += not in_a_log
            wasted += getattr(err, "pos", end) - at
            if unreadable > MAX_UNREADABLE or wasted > 4 * len(text):
                raise InputError(where, "most of it is no JSON", "Send it as the program wrote it") from err
            value, at = None, end
            if in_a_log:
                continue
        yield value


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _decode(text: str, at: int, end: int) -> tuple[Any, int]:
    """Read the document at `at`, or the object that follows other text on the same line. Raises `ValueError`."""
    if text[at] == "{":
        return _DECODER.raw_decode(text, at)
    brace = text.find("{", at, end)
    if text[at] == "[" or brace < 0:
        try:
            return _DECODER.raw_decode(text, at)
        except ValueError:
            if brace < 0:
                raise
    return _DECODER.raw_decode(text, brace)
