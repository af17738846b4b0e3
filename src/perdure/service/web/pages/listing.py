"""What every listing has: filters, sorting and time ranges by plain links and forms, and the same rows as CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from perdure.errors import InputError
from perdure.service.store.queries.order import SortOrder, Within
from perdure.service.store.queries.reader import Page
from perdure.service.web.pages.labels import iso, visible
from perdure.service.web.pages.render import page
from perdure.service.web.state import WebState

T = TypeVar("T")

LAST: Mapping[str, tuple[str, float]] = {
    "1h": ("Last hour", 3600.0),
    "24h": ("Last 24 hours", 24 * 3600.0),
    "7d": ("Last 7 days", 7 * 24 * 3600.0),
    "30d": ("Last 30 days", 30 * 24 * 3600.0),
}
CSV = "csv"
MOST_IN_CSV = 10_000  # rows
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # some programs take full-width ones, too

Word = Annotated[str, Query(max_length=256)]
Moment = Annotated[str, Query(max_length=32)]


@dataclass(frozen=True)
class ListingQuery:
    """What the address of a listing may say. Each page reads what it has a use for."""

    user: Word = ""
    partition: Word = ""
    last: Annotated[str, Query(max_length=8)] = ""
    since: Annotated[str, Query(alias="from", max_length=32)] = ""
    until: Annotated[str, Query(alias="to", max_length=32)] = ""
    sort: Annotated[str, Query(max_length=40)] = ""
    cursor: Annotated[str | None, Query(max_length=256)] = None
    format: Annotated[str, Query(max_length=8)] = ""

    @property
    def is_csv(self) -> bool:
        return self.format == CSV

    def within(self, now: float) -> Within:
        """The stretch of time. Raises `InputError` for what is not a date and time."""
        if known_value("last", self.last, LAST):
            return Within(now - LAST[self.last][1])
        return Within(_instant("from", self.since), _instant("to", self.until))

    def order(self, names: Collection[str]) -> SortOrder | None:
        """How to sort; None where nothing is asked for. Raises `InputError` for what cannot be sorted by."""
        name = known_value("sort", self.sort.removeprefix("-"), names)
        return SortOrder(name, self.sort.startswith("-")) if name else None


Wanted = Annotated[ListingQuery, Depends()]


def _instant(where: str, text: str) -> float | None:
    """Seconds since the epoch of a date and time of this machine's zone, or of the zone that it names."""
    if not text:
        return None
    try:
        return dt.datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as err:
        what = f"{visible(text)!r} is not a date and time"
        raise InputError(where, what, "Write it like 2026-11-23T02:10") from err


@dataclass(frozen=True, slots=True)
class ListingAddress:
    """The address of a listing, and those of its variations. `own` are the page's own filters."""

    path: str
    asked: ListingQuery
    own: Mapping[str, str]
    sorts: tuple[str, ...]

    def link(self, **changes: str) -> str:
        """The listing with some filters changed, from its first row on; "" takes a filter away."""
        a = self.asked
        shared = {"user": a.user, "partition": a.partition, "last": a.last, "from": a.since, "to": a.until}
        given = {**self.own, **shared, "sort": a.sort, **changes}
        query = urlencode({name: value.encode("utf-8", "replace") for name, value in given.items() if value})
        return f"{self.path}?{query}" if query else self.path

    def sorted_by(self, name: str) -> str:
        """The listing sorted by a column; what is sorted by it already is turned round."""
        return self.link(sort=f"-{name}" if self.asked.sort == name else name)

    def standing(self, name: str) -> str:
        """How it is sorted by a column, in the words of ``aria-sort``; "" where it is not."""
        if self.asked.sort.removeprefix("-") != name:
            return ""
        return "descending" if self.asked.sort.startswith("-") else "ascending"

    @property
    def narrowed_to(self) -> str:
        """The filters that all listings share, in words that end a sentence; "" where none is set."""
        a = self.asked
        said = [f"of {a.user}" if a.user else "", f"in {a.partition}" if a.partition else ""]
        if a.last:
            said.append(f"of the {LAST[a.last][0].lower()}")
        said += [f"from {a.since}" if a.since else "", f"to {a.until}" if a.until else ""]
        return "".join(f", {visible(words)}" for words in said if words)

    @property
    def csv(self) -> str:
        return self.link(format=CSV)

    @property
    def last_choices(self) -> list[tuple[str, str]]:
        return [("", "Any time"), *((name, words) for name, (words, _) in LAST.items())]

    @property
    def is_narrowed(self) -> bool:
        return bool(self.filters_set) or any(self.own.values())

    @property
    def filters_set(self) -> int:
        """How many of the filters that all listings share are set."""
        a = self.asked
        return sum(map(bool, (a.user, a.partition, a.last, a.since, a.until)))

    def onward(self, found: Page[Any] | None) -> str:
        """The next page; "" where there is none."""
        return self.link(cursor=found.next_cursor) if found is not None and found.next_cursor else ""


def show(
    request: Request, web: WebState, name: str, title: str, listing: ListingAddress, found: Page[Any],
    states: Iterable[str], **values: Any,
) -> Response:  # fmt: skip
    """The page of a listing: rows, the way to more of them, and a tab for each state."""
    tabs = [(state, listing.link(state=state)) for state in ("", *states)]
    state, more = listing.own["state"], listing.onward(found)
    return page(
        request, web, name, title, rows=found.items, listing=listing, more=more, tabs=tabs, state=state, **values
    )


def known_value(where: str, value: str, known: Collection[str]) -> str:
    """`value`, or "" where nothing is asked for. Raises `InputError` for what would filter by nothing, or by all."""
    if value and value not in known:
        raise InputError(where, f"{visible(value)!r} is not known", f"Use {', '.join(known)}")
    return value


Columns = Sequence[tuple[str, Callable[[T], object]]]
"""What a table holds as CSV: each column's name, and its value in a row."""


def csv_file(name: str, columns: Columns[T], rows: Iterable[T]) -> Response:
    """A table as a file. Text that a spreadsheet would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([title for title, _ in columns])
    writer.writerows([cell(value(row)) for _, value in columns] for row in rows)
    headers = {"Content-Disposition": f'attachment; filename="perdure-{name}.csv"'}
    return Response(text.getvalue().encode("utf-8"), media_type="text/csv; charset=utf-8", headers=headers)


def cell(value: object) -> object:
    """A value as CSV holds it.

    >>> cell("=1+1"), cell(" @x"), cell(-3.5), cell("a\\x1bb"), cell(None), cell(("n1", "n2"))
    ("'=1+1", "' @x", -3.5, 'a␛b', '', 'n1 n2')
    """
    if value is None or isinstance(value, bool | int | float):
        return "" if value is None else value
    text = visible(" ".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return f"'{text}" if text.lstrip().startswith(FORMULA) or text[:1] in ("\t", "\n") else text


def at(seconds: float | None) -> str:
    """An instant as CSV holds it: ISO 8601, with the zone."""
    return iso(seconds)


def every(read: Callable[[str | None], Page[T]]) -> Iterable[T]:
    """The rows of all pages of a listing, up to `MOST_IN_CSV`."""
    cursor, count = None, 0
    while count < MOST_IN_CSV:
        found = read(cursor)
        yield from found.items
        count += len(found.items)
        cursor = found.next_cursor
        if cursor is None:
            return


def arranged(rows: Sequence[T], keys: Mapping[str, Callable[[T], Any]], asked: ListingQuery) -> list[T]:
    """Rows that are all at hand, sorted as asked; as they came where another table of the page is to be sorted."""
    name = asked.sort.removeprefix("-")
    return sorted(rows, key=keys[name], reverse=asked.sort.startswith("-")) if name in keys else list(rows)
