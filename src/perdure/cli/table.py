"""The tables of the command line, and the one rule by which they fit a terminal.

With no width (a pipe, a file, ``--wide``) each row is one line: nothing is cut, left out or shortened. Else

1. keys, words and names are whole: never cut, never broken; times are short (5m, 07:31);
2. text is broken between words; a word that is longer than its column is cut and ends in "…";
3. where the columns do not fit, empty ones go first, then those with the largest `leave`; a last line names them;
4. where not even the others fit, each row becomes a block with one cell a line.

Only a key or a name that is longer than a whole line makes a line longer than the width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from unicodedata import combining, east_asian_width

from perdure.cli.text import plain

GAP = "  "
LEAST_TEXT = 20  # characters of a column of text: what leaves less room for it is left out
LEAST_BLOCK_TEXT = 12  # characters next to the labels of a block; less, and they are above
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
LAST_INSTANT_S = 2.0**37  # in a year of four digits

Paint = Callable[[str, str], str]
"""Colours the first text by the meaning of the second."""


class CellKind(StrEnum):
    """How a column behaves where there is little room."""

    WORD = "word"  # one line, whole: ids, states, times, figures
    NAMES = "names"  # several names: broken between two, each whole
    TEXT = "text"  # sentences: broken between words, a longer word is cut


@dataclass(frozen=True, slots=True)
class Column:
    """A column; one with `leave` 0 is never left out."""

    name: str
    kind: CellKind = CellKind.WORD
    leave: int = 0


def word(name: str, leave: int = 0) -> Column:
    """A column of ids, states, times or figures."""
    return Column(name, CellKind.WORD, leave)


def names(name: str, leave: int = 0) -> Column:
    """A column of names with spaces between them."""
    return Column(name, CellKind.NAMES, leave)


def text(name: str, leave: int = 0) -> Column:
    """A column of sentences."""
    return Column(name, CellKind.TEXT, leave)


@dataclass(frozen=True, slots=True)
class Shortened:
    """A cell that says less where there is little room."""

    full: str
    short: str


def instant(seconds: float | None) -> str:
    """ISO-8601 in this machine's zone, to the second; "" for none."""
    return "" if seconds is None else _local(seconds).isoformat(timespec="seconds")


def clock(seconds: float | None, now: float) -> Shortened:
    """A time: 07:31, with the day where that is another one, and the year where that is."""
    if seconds is None:
        return Shortened("", "")
    then, today = _local(seconds), _local(now)
    form = "%H:%M" if then.date() == today.date() else "%b %d %H:%M" if then.year == today.year else "%Y-%m-%d"
    return Shortened(instant(seconds), then.strftime(form))


def since(seconds: float | None, now: float) -> Shortened:
    """A time by how long ago it was: 5m; in full the time itself."""
    return Shortened(instant(seconds), "" if seconds is None else age(now - seconds))


def age(seconds: float) -> str:
    """A length of time in its largest whole unit: 40s, 5m, 3h, 2d."""
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f}{unit}"
    return f"{max(0, int(seconds))}s"


def lines(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    width: int | None,
    paint: Paint = lambda shown, _: shown,
) -> Iterator[str]:
    """The lines of a table in `width` characters; None: as many as there are. Cells may be hostile text."""
    cells = [[_cell(cell, short=width is not None) for cell in row] for row in rows]
    if width is None:
        yield from _grid(columns, cells, [_longest(column, cells, i) for i, column in enumerate(columns)], paint)
        return
    shown = _chosen(columns, cells, width)
    if shown is None:
        yield from _blocks(columns, cells, width, paint)
        return
    kept = [columns[i] for i in shown]
    kept_cells = [[row[i] for i in shown] for row in cells]
    widths = _widths(kept, kept_cells, width)
    yield from _grid(kept, kept_cells, widths, paint)
    left = [column.name for i, column in enumerate(columns) if i not in shown and _has_cell(cells, i)]
    said = [f"not shown: {', '.join(left)}"] if left else []
    said += ["… stands for more"] if _cuts(kept, kept_cells, widths) else []
    if said:
        yield from (paint(line, "note") for line in wrapped(f"({'; '.join(said)}; --wide shows all)", width))


def wrapped(sentence: str, width: int, *, cut: bool = False) -> list[str]:
    """A text as lines of `width`, broken between words; a longer word has a line of its own, cut only with `cut`.

    What an equation says stays together: (p = 0.88).
    """
    found: list[str] = []
    for part in (each.replace("\0=\0", " = ") for each in sentence.replace(" = ", "\0=\0").split()):
        if cut and cell_width(part) > width:
            part = f"{_fitting(part, width - 1)}…"
        if found and cell_width(found[-1]) + 1 + cell_width(part) <= width:
            found[-1] += f" {part}"
        else:
            found.append(part)
    return found or [""]


def cell_width(shown: str) -> int:
    """Characters of a terminal that a text takes: East Asian ones take two, marks on others none."""
    if shown.isascii():
        return len(shown)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in shown)


# ---------------------------------------------------------------- which columns, and how wide


def _chosen(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The columns that fit; None where those that must stay do not."""
    shown = list(range(len(columns)))
    while _least(columns, cells, shown) > width:
        leaving = max(shown, key=lambda i: (columns[i].leave > 0, not _has_cell(cells, i), columns[i].leave, i))
        if not columns[leaving].leave:
            return None
        shown.remove(leaving)
    return shown


def _least(columns: Sequence[Column], cells: Sequence[Sequence[str]], shown: Sequence[int]) -> int:
    return sum(_narrowest(columns[i], cells, i) for i in shown) + len(GAP) * (len(shown) - 1)


def _narrowest(column: Column, cells: Sequence[Sequence[str]], i: int) -> int:
    """The least width with which a column may be shown."""
    longest = _longest(column, cells, i)
    if column.kind is CellKind.WORD:
        return longest
    if column.kind is CellKind.NAMES:
        parts = (cell_width(part) for row in cells for part in row[i].split())
        return max(cell_width(column.name), max(parts, default=0))
    return min(longest, max(LEAST_TEXT, cell_width(column.name)))


def _longest(column: Column, cells: Sequence[Sequence[str]], i: int) -> int:
    return max(cell_width(column.name), max((cell_width(row[i]) for row in cells), default=0))


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """What each column gets: the least that it needs, and a share of what is left, those that need little first."""
    widths = [_narrowest(column, cells, i) for i, column in enumerate(columns)]
    wanted = [_longest(column, cells, i) for i, column in enumerate(columns)]
    left = width - sum(widths) - len(GAP) * (len(columns) - 1)
    growing = sorted((i for i in range(len(columns)) if wanted[i] > widths[i]), key=lambda i: wanted[i] - widths[i])
    for place, i in enumerate(growing):
        more = min(wanted[i] - widths[i], left // (len(growing) - place))
        widths[i] += more
        left -= more
    return widths


def _cuts(columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Sequence[int]) -> bool:
    """Whether a word of a text is longer than its column."""
    texts = [i for i, column in enumerate(columns) if column.kind is CellKind.TEXT]
    return any(cell_width(part) > widths[i] for row in cells for i in texts for part in row[i].split())


def _has_cell(cells: Sequence[Sequence[str]], i: int) -> bool:
    return any(row[i] for row in cells)


# ---------------------------------------------------------------- drawing


def _grid(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Sequence[int], paint: Paint
) -> Iterator[str]:
    yield _joined([(column.name, "heading") for column in columns], widths, paint)
    for row in cells:
        parts = [_broken(column, cell, size) for column, cell, size in zip(columns, row, widths, strict=True)]
        for n in range(max(map(len, parts))):
            line = [(part[n] if n < len(part) else "", cell) for part, cell in zip(parts, row, strict=True)]
            yield _joined(line, widths, paint)


def _broken(column: Column, cell: str, width: int) -> list[str]:
    """A cell as lines of its column."""
    if column.kind is CellKind.WORD or cell_width(cell) <= width:
        return [cell]
    return wrapped(cell, width, cut=column.kind is CellKind.TEXT)


def _joined(line: Sequence[tuple[str, str]], widths: Sequence[int], paint: Paint) -> str:
    """Cells next to each other, each with what gives it its colour; no blanks at the end."""
    last = max((i for i, (shown, _) in enumerate(line) if shown), default=-1)
    padded = (
        paint(shown, meaning) + " " * (0 if i == last else size - cell_width(shown))
        for i, ((shown, meaning), size) in enumerate(zip(line[: last + 1], widths, strict=False))
    )
    return GAP.join(padded)


def _blocks(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int, paint: Paint) -> Iterator[str]:
    """Each row as a block: a line for each cell that is not empty, behind its label, or below it where that is long."""
    label = max(cell_width(column.name) for column in columns)
    room = width - label - len(GAP)
    for n, row in enumerate(cells):
        if n:
            yield ""
        for column, cell in zip(columns, row, strict=True):
            if not cell:
                continue
            beside = room >= (LEAST_BLOCK_TEXT if column.kind is CellKind.TEXT else _word_width(column, cell))
            size = room if beside else width
            parts = [cell] if column.kind is CellKind.WORD else wrapped(cell, size, cut=column.kind is CellKind.TEXT)
            if not beside:
                yield paint(column.name, "heading")
            for k, part in enumerate(parts):
                margin = column.name if beside and k == 0 else ""
                indent = " " * (label - cell_width(margin)) + GAP if beside else ""
                yield paint(margin, "heading") + indent + paint(part, cell)


def _word_width(column: Column, cell: str) -> int:
    """The longest piece of a cell that stays in one piece."""
    return cell_width(cell) if column.kind is CellKind.WORD else max(map(cell_width, cell.split()), default=0)


def _cell(value: Any, *, short: bool) -> str:
    if isinstance(value, Shortened):
        value = value.short if short else value.full
    return plain(str(value)).strip()


def _fitting(part: str, width: int) -> str:
    """The start of a word that takes at most `width`."""
    while cell_width(part) > width:
        part = part[:-1]
    return part


def _local(seconds: float) -> datetime:
    """Of an instant that no calendar has, the nearest that one has."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), LAST_INSTANT_S)).astimezone()
