"""A log that people read as it is written: each record is one line, safe for a terminal, and what repeats is not."""

from __future__ import annotations

import logging
import shutil
import sys

MAX_LINE = 600


def printable(text: str) -> str:
    """`text` on one line without anything that moves a terminal's cursor, colours or reorders; bounded.

    >>> printable("a\\x1b[2Jb\\nc\\u202ed")
    'a\\\\x1b[2Jb\\\\nc\\\\u202ed'
    """
    text = text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class PrintableFormatter(logging.Formatter):
    """Times in ISO 8601 with the zone; each record is one line, but for the traceback of an error.

    With a `width` what is merely told has no more characters: the address above it stays on the screen for longer.
    """

    def __init__(self, width: int | None = None, of: str = "") -> None:
        of = f"{of}: ".replace("%", "%%") if of else ""
        super().__init__(f"%(asctime)s %(levelname)s {of}%(message)s", "%Y-%m-%dT%H:%M:%S%z")
        self._width = width

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = printable(record.getMessage()), ()
        line = super().format(record)
        if self._width is None or record.levelno > logging.INFO or len(line) <= self._width:
            return line
        return f"{line[: self._width - 1]}…"


def log_to_stderr(level: int = logging.INFO, of: str = "") -> None:
    """Send the service's own log, and no library's, to stderr; on a terminal each entry takes one line.

    `of` begins each entry, where several processes write to one place.
    """
    handler = logging.StreamHandler()
    width = max(40, shutil.get_terminal_size().columns) if sys.stderr.isatty() else None
    handler.setFormatter(PrintableFormatter(width, of))
    own = logging.getLogger("perdure")
    own.handlers[:] = [handler]
    own.setLevel(level)
    own.propagate = False


class Repeats:
    """Passes a text on only when it is another than the last one of its kind, or `every_s` later."""

    def __init__(self, every_s: float = 600.0) -> None:
        self._every_s = every_s
        self._said: dict[str, tuple[str, float]] = {}

    def is_news(self, kind: str, text: str, now: float) -> bool:
        last, at_s = self._said.get(kind, ("", 0.0))
        if text == last and 0 <= now - at_s < self._every_s:
            return False
        self._said[kind] = (text, now)
        return True

    def ended(self, kind: str) -> bool:
        """Forget a kind; True where it had been said."""
        return self._said.pop(kind, None) is not None
