"""What commands print: JSON with the version of its form, lines, and tables as wide as the terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from perdure.cli.table import Column, Shortened, cell_width, instant, wrapped
from perdure.cli.table import clock as clock_at
from perdure.cli.table import lines as table_lines
from perdure.cli.table import since as since_at
from perdure.cli.text import plain

__all__ = ["clock", "instant", "print_json", "print_line", "print_table", "since"]

USUAL_WIDTH = 80  # of a terminal that does not say
LEAST_WIDTH = 20  # of one that says nonsense
STYLES = {
    "retry": "green", "probe": "yellow", "stop": "red",
    "transient": "green", "unsure": "yellow", "deterministic": "red",
    "running": "cyan", "completed": "green", "failed": "red", "held": "yellow", "cancelled": "dim",
    "up": "green", "down": "red", "draining": "yellow", "drained": "yellow", "unknown": "dim",
    "done": "green", "refused": "red", "planned": "cyan", "begun": "cyan", "superseded": "dim", "expired": "dim",
    "withheld": "yellow", "heading": "bold", "note": "dim",
}  # fmt: skip
CODES = {"bold": 1, "dim": 2, "reverse": 7, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


def print_json(kind: str, version: int, **values: Any) -> None:
    """One JSON object on one line; its `schema` is "perdure.KIND/VERSION"."""
    sys.stdout.write(json.dumps({"schema": f"perdure.{kind}/{version}", **values}) + "\n")


def print_line(text: str, *, whole: bool = False) -> None:
    """A line, safe for a terminal: a sentence is broken between words there; a command to paste is `whole`."""
    width = None if whole else screen_width()
    shown = plain(text)
    sys.stdout.write(shown + "\n" if width is None else "\n".join(indented(shown, width)) + "\n")


def indented(line: str, width: int) -> list[str]:
    """A line as several of `width`, all as far to the right as the first."""
    if cell_width(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return [indent + part for part in wrapped(line, max(LEAST_WIDTH, width - len(indent)))]


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, wide: bool = False) -> None:
    """Print a table by the rule of `perdure.cli.table`; `wide`: as where it is piped."""
    for line in table_lines(columns, rows, None if wide else screen_width(), paint):
        sys.stdout.write(f"{line}\n")


def screen_width() -> int | None:
    """Characters in a line of the terminal; None where no person looks."""
    if not sys.stdout.isatty():
        return None
    try:
        asked = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        asked = 0
    try:
        found = asked or os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        found = 0
    return max(LEAST_WIDTH, found or USUAL_WIDTH)


def paint(shown: str, meaning: str) -> str:
    """A text in the colour of a word's meaning, or in the styles that `meaning` names, where colours are wanted."""
    styles = STYLES.get(meaning, meaning if set(meaning.split()) <= CODES.keys() else "")
    if not styles or not shown or not coloured():
        return shown
    return f"\x1b[{';'.join(str(CODES[style]) for style in styles.split())}m{shown}\x1b[0m"


def coloured() -> bool:
    """Whether a person looks who wants colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def clock(seconds: float | None) -> Shortened:
    """A time as a cell: 07:31 on a terminal."""
    return clock_at(seconds, time.time())


def since(seconds: float | None) -> Shortened:
    """How long ago something was, as a cell: 5m on a terminal, elsewhere the time."""
    return since_at(seconds, time.time())
