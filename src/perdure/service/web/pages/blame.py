"""Suspects: what the latest failures have in common, as a list and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from perdure.blame.builders.attempts import NODE, STORAGE, USER, AttemptRow, attempt_window
from perdure.blame.builders.named import Component, Named
from perdure.blame.grid import Grid, grid
from perdure.service.blame.announce import in_words
from perdure.service.store.queries import suspects
from perdure.service.store.queries.suspects import SuspectRow
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, arranged, at, csv_file, known_value
from perdure.service.web.pages.render import page
from perdure.service.web.state import Here, Viewer

router = APIRouter()

MOST = (48, 32)
"""Rows and columns that the picture shows; as many columns as a screen is wide."""
LEVELS = 8
CELL = 20
LETTER = 7.4  # of a name in the picture
_LONGEST = 18  # characters of a name in the picture


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair that has attempts."""

    x: int
    y: int
    level: int  # of 0 (none failed) to LEVELS (all)
    title: str


@dataclass(frozen=True, slots=True)
class AxisLabel:
    """The name of a row or a column, and whether it is a suspect."""

    at: int
    name: str
    short: str
    suspect: bool


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The grid as it is drawn, in units of a screen pixel."""

    left: int  # where the cells begin
    top: int
    width: int
    height: int
    rows: tuple[AxisLabel, ...]
    columns: tuple[AxisLabel, ...]
    cells: tuple[Cell, ...]
    left_out: int
    by_storage: bool  # the rows are file systems and the columns nodes; else nodes and users


COLUMNS: Columns[SuspectRow] = (
    ("suspect", lambda row: row.standing.accusation.name),
    ("tier", lambda row: row.standing.accusation.tier),
    ("or", lambda row: tuple(name for _, name in row.standing.accusation.components[1:])),
    ("how", lambda row: row.standing.accusation.kind),
    ("failed", lambda row: row.standing.accusation.failed),
    ("passed", lambda row: row.standing.accusation.passed),
    ("users", lambda row: row.standing.accusation.users),
    ("failure_rate", lambda row: row.standing.accusation.rate),
    ("rate_low", lambda row: row.standing.accusation.rate_low),
    ("rate_high", lambda row: row.standing.accusation.rate_high),
    ("since", lambda row: at(row.standing.since_s)),
    ("cleared", lambda row: at(row.cleared_s)),
)
SORTED_BY: Mapping[str, Callable[[SuspectRow], Any]] = {
    "suspect": lambda row: row.standing.accusation.name,
    "how": lambda row: row.standing.accusation.kind,
    "fails": lambda row: row.standing.accusation.rate,
    "since": lambda row: row.standing.since_s,
    "cleared": lambda row: row.cleared_s or 0.0,
}


@router.get("/blame")
def blame_page(request: Request, web: Here, identity: Viewer, asked: Wanted) -> Response:  # noqa: ARG001
    """Who stands accused, who was cleared, and the attempts that say so; suspects and cleared ones as CSV."""
    known_value("sort", asked.sort.removeprefix("-"), SORTED_BY)
    standing = arranged(suspects.standing(web.reader), SORTED_BY, asked)
    cleared = arranged(suspects.cleared(web.reader), SORTED_BY, asked)
    if asked.is_csv:
        return csv_file("suspects", COLUMNS, [*standing, *cleared])
    since_s = web.now() - web.blame.window_s
    rows = [row for _, row in suspects.ended_since(web.reader, since_s, mounts=web.blame.storage)]
    accused = {one for row in standing for one in row.standing.accusation.components}
    return page(
        request,
        web,
        "blame",
        "Blame",
        suspects=[(row.standing, in_words(row.standing)) for row in standing],
        cleared=[(row.standing, row.cleared_s) for row in cleared],
        picture=picture_of(rows, accused),
        failed=sum(row.failed for row in rows),
        own_fault=sum(row.failed and row.deterministic for row in rows),
        ended=len(rows),
        settings=web.blame,
        listing=ListingAddress("/blame", asked, {}, tuple(SORTED_BY)),
    )


def picture_of(rows: Sequence[AttemptRow], accused: Collection[Component]) -> HeatMap | None:
    """File systems by nodes, of all attempts that are no user's own fault; where none is known, nodes by users.

    File systems are the rows: they are few, and a picture is better wide than high. None where there are no such
    attempts.
    """
    told = [row for row in rows if row.nodes and not (row.failed and row.deterministic)]
    if not told:
        return None
    found = attempt_window(told)
    culprits = {place for place, component in enumerate(found.components) if component in accused}
    if any(row.storage for row in told):
        return _drawn(found, grid(found.window, culprits, STORAGE, NODE, MOST), culprits)
    return _drawn(found, grid(found.window, culprits, NODE, USER, MOST), culprits)


def _drawn(found: Named, shown: Grid, culprits: Collection[int]) -> HeatMap:
    def lines(places: Sequence[int], start: int) -> tuple[AxisLabel, ...]:
        names = [found.components[place][1] for place in places]
        return tuple(
            AxisLabel(start + number * CELL, name, _short(name), place in culprits)
            for number, (place, name) in enumerate(zip(places, names, strict=True))
        )

    left, top = _room(found, shown.rows.tolist(), 1.0), _room(found, shown.columns.tolist(), 0.77)  # sin 50 degrees
    down, across = lines(shown.rows.tolist(), top), lines(shown.columns.tolist(), left)
    cells = []
    for i, row in enumerate(down):
        for j, column in enumerate(across):
            n, e = int(shown.units[i, j]), int(shown.failures[i, j])
            if n:
                level = 0 if e == 0 else max(1, round(LEVELS * e / n))
                title = f"{row.name}, {column.name}: {e} of {n} attempts failed"
                cells.append(Cell(column.at, row.at, level, title))
    leans = _room(found, shown.columns.tolist(), 0.64)  # cos 50 degrees
    width, height = left + CELL * len(across) + leans, top + CELL * len(down) + 8
    return HeatMap(left, top, width, height, down, across, tuple(cells), shown.left_out, shown.row_tier == STORAGE)


def _room(found: Named, places: Sequence[int], share: float) -> int:
    """Pixels for the longest of the names."""
    letters = max((len(_short(found.components[place][1])) for place in places), default=0)
    return round(share * letters * LETTER) + 16


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
