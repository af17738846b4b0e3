"""Notices: what was sent to whom, what waits to be sent, and what a target did not take."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.service.notices import queries as notices
from perdure.service.notices.queries import MessageRow
from perdure.service.store.queries.reader import MAX_LIMIT, Page
from perdure.service.web.pages.labels import BADGES
from perdure.service.web.pages.listing import (
    Columns,
    ListingAddress,
    Wanted,
    Word,
    at,
    csv_file,
    every,
    known_value,
    show,
)
from perdure.service.web.state import Here, Operator

router = APIRouter()

ROWS = 50

COLUMNS: Columns[MessageRow] = (
    ("key", lambda row: row.message.key),
    ("target", lambda row: row.message.target),
    ("whose", lambda row: row.message.whose),
    ("kind", lambda row: row.message.kind.value),
    ("severity", lambda row: row.message.kind.severity.value),
    ("title", lambda row: row.message.title),
    ("about", lambda row: tuple(notice.name for notice in row.message.notices)),
    ("count", lambda row: row.message.count),
    ("state", lambda row: row.state),
    ("tries", lambda row: row.tries),
    ("error", lambda row: row.error),
    ("happened", lambda row: at(row.message.last_s)),
    ("ended", lambda row: at(row.ended_s)),
)


@router.get("/notices")
def notices_page(
    request: Request,
    web: Here,
    identity: Operator,  # noqa: ARG001
    asked: Wanted,
    state: Annotated[str, Query(max_length=20)] = "",
    target: Word = "",
) -> Response:
    """Messages to targets, as a page or as CSV. For operators: they name all users' jobs."""
    state = known_value("state", state, BADGES["message"])

    def read(cursor: str | None, limit: int = MAX_LIMIT) -> Page[MessageRow]:
        return notices.find_messages(web.reader, state=state, target=target, cursor=cursor, limit=limit)

    if asked.is_csv:
        return csv_file("notices", COLUMNS, every(read))
    found = read(asked.cursor, ROWS)
    listing = ListingAddress("/notices", asked, {"state": state, "target": target}, ())
    return show(
        request,
        web,
        "notices",
        "Notices",
        listing,
        found,
        BADGES["message"],
        target=target,
        counts=notices.counts(web.reader),
        wait_reasons=notices.wait_reasons(web.reader, found.items, web.settings.notices, web.now()),
    )
