"""Help that fits the terminal, however narrow that is."""

from __future__ import annotations

import re
import shutil
from typing import Any

from typer.core import TyperGroup

CONTEXT: Any = TyperGroup.context_class
MARGIN = 2  # columns that stay free at the right
NARROWEST = 20
ROOMY = 70  # from which on the names of options have the room that they take
_TYPES = {"<int>": "N", "<int range>": "N", "<float>": "X", "<float range>": "X", "<str>": "TEXT", "<path>": "PATH"}
"""What the library calls the kind of a value, and what a person reads in its place."""
_OF_ARGUMENT = re.compile(r"^([^-<][^<]*) <[A-Za-z \[\]]+>$")  # its name says already what it is
_PART = re.compile(r" *[^ |]+\|?| *\|")  # a word; of <pending|held|running> each value is one


class FittingHelp(CONTEXT.formatter_class):  # type: ignore[misc]
    """Writes help in the width of the terminal; the library's own never goes below 50 columns."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        room = min(shutil.get_terminal_size().columns, max_width or 80) - MARGIN
        super().__init__(indent_increment, width or max(NARROWEST, room), max_width)

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        rows = [(_named(term), says) for term, says in rows]
        super().write_dl(rows, col_max if self.width >= ROOMY else self.width // 3, col_spacing)

    def getvalue(self) -> str:
        """All that was written; lines that nothing has wrapped yet are folded."""
        return "\n".join(part for line in super().getvalue().split("\n") for part in folded(line, self.width))


def _named(term: str) -> str:
    """An option or argument without the library's words for types.

    >>> _named("--limit <int range>"), _named("TRACE <list[Path]>"), _named("[-- JSON] <list[str]>")
    ('--limit N', 'TRACE', '[-- JSON]')
    >>> _named("--state <up|down>")
    '--state <up|down>'
    """
    term = _OF_ARGUMENT.sub(r"\1", term).replace("<list[str]>", "TEXT")
    for kind, name in _TYPES.items():
        term = term.replace(kind, name)
    return term


class HelpContext(CONTEXT):  # type: ignore[misc]
    """What a command runs in, with help of that kind."""

    formatter_class = FittingHelp


def folded(line: str, width: int) -> list[str]:
    """A line as lines of `width`, each below where its text began; one word that is longer stays whole.

    >>> folded("  2  usage or bad input", 14)
    ['  2  usage or', '     bad input']
    """
    indent = re.match(r" *(?:\d+  )?", line).end()  # type: ignore[union-attr]
    found = [line[:indent]]
    for part in _PART.findall(line[indent:]):
        if len(found[-1]) + len(part) > width and found[-1].strip():
            found.append(" " * indent + part.lstrip())
        else:
            found[-1] += part
    return found
