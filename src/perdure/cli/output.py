"""What commands print: JSON with the version of its form, and tables. Rich is loaded where a table is."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure.cli.text import plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

PIPED_WIDTH = 4000  # of a table that no person looks at: nothing is cut or wrapped

STYLES = {
    "retry": "green", "probe": "yellow", "stop": "red",
    "transient": "green", "unsure": "yellow", "deterministic": "red",
    "running": "cyan", "completed": "green", "failed": "red", "held": "yellow", "cancelled": "dim",
    "up": "green", "down": "red", "draining": "yellow", "drained": "yellow", "unknown": "dim",
    "done": "green", "refused": "red", "planned": "cyan", "begun": "cyan", "superseded": "dim", "expired": "dim",
    "withheld": "yellow",
}  # fmt: skip


def print_json(kind: str, version: int, **values: Any) -> None:
    """One JSON object on one line; its `schema` is "perdure.KIND/VERSION"."""
    sys.stdout.write(json.dumps({"schema": f"perdure.{kind}/{version}", **values}) + "\n")


def print_line(text: str) -> None:
    """One line, safe for a terminal."""
    sys.stdout.write(plain(text) + "\n")


def show(*parts: RenderableType) -> None:
    """Print what Rich can draw. No markup is read in it; where it is piped nothing is cut, wrapped or padded."""
    from rich.console import Console

    piped = not sys.stdout.isatty()
    console = Console(width=PIPED_WIDTH if piped else None, markup=False, emoji=False, highlight=False)
    with console.capture() as drawn:
        console.print(*parts, sep="\n")
    lines = drawn.get().splitlines(keepends=True)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in lines) if piped else "".join(lines))


def styled(word: str, style: str | None = None) -> Text:
    """A word in the colour of its meaning."""
    from rich.text import Text

    return Text(plain(word), style=STYLES.get(word, "") if style is None else style)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: Sequence[str] = ()) -> None:
    """Print a table. Columns in `whole` are never wrapped or cut; the last one takes what room there is."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name in whole, overflow="fold")
    for row in rows:
        table.add_row(*(styled(str(cell)) for cell in row))
    show(table)


def instant(seconds: float | None) -> str:
    """ISO-8601 in this machine's zone, to the second; "" for none."""
    return "" if seconds is None else datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
