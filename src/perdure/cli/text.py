"""Text of jobs, nodes and users made safe for a terminal."""

from __future__ import annotations

from typing import TextIO

MAX_CELL = 2000
MAX_JOB_NAME = 80
"""Of a job's name a terminal shows no more: some write a whole command line into it. Pipes and JSON have it whole."""


def plain(text: str, limit: int = MAX_CELL) -> str:
    """One line without anything that moves the cursor, colours, hides or reorders.

    Blanks of every kind become one space each; control, bidirectional and other unprintable characters, lone
    surrogates among them, are dropped.

    >>> plain("a\\x1b[2Jb\\tc\\u202ed\\n")
    'a[2Jb cd '
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def replace_missing_letters(*streams: TextIO) -> None:
    """Write "?" for a letter that a stream lacks: a terminal without it is no reason to stop."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
