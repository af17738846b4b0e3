"""re2 patterns over the bytes of a log: linear in the text, whatever the pattern, and without a word on stderr."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

_MAX_SET_MEM = 32 << 20
"""Bytes; a set that has not enough forgets its states, and finds them again."""


def options(max_mem: int = 8 << 20, never_capture: bool = False) -> Any:
    """Options for bytes, each byte a character."""
    chosen = re2.Options()
    chosen.encoding = re2.Options.Encoding.LATIN1
    chosen.log_errors = False
    chosen.max_mem = max_mem
    chosen.never_capture = never_capture
    return chosen


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The pattern, compiled when it is first used; it captures nothing, which makes it several times faster."""
    return re2.compile(pattern.encode(), options(never_capture=True))


def says_any(patterns: tuple[str, ...], text: bytes) -> bool:
    """Whether a line matches one of the patterns, in one pass over it."""
    return _set_of(patterns).Match(text) is not None


@lru_cache(maxsize=256)
def _set_of(patterns: tuple[str, ...]) -> Any:
    found = re2.Set.SearchSet(options(_MAX_SET_MEM, never_capture=True))
    for pattern in patterns:
        found.Add(pattern.encode())
    found.Compile()
    return found


@lru_cache(maxsize=256)
def capturing(pattern: str) -> Any:
    """The same with its groups."""
    return re2.compile(pattern.encode(), options())
