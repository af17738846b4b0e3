"""Actions: the journal of what was done, with a person's hand on it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.service.context import Here, Viewer
from perdure.service.controller import undo_of
from perdure.service.pages.render import page
from perdure.service.pages.words import BADGES
from perdure.service.queries import actions

router = APIRouter()

ROWS = 50


@router.get("/actions")
def actions_page(
    request: Request,
    web: Here,
    identity: Viewer,  # noqa: ARG001
    state: Annotated[str, Query(max_length=20)] = "",
    cursor: Annotated[str | None, Query(max_length=40)] = None,
) -> Response:
    """The journal of actions."""
    wanted = [state] if state in BADGES["action"] else []
    found = actions.find_actions(web.reader, states=wanted, cursor=cursor, limit=ROWS)
    return page(
        request,
        web,
        "actions",
        "Actions",
        rows=found.items,
        undoable={row.key for row in found.items if row.state == "done" and undo_of(row.action) is not None},
        next_cursor=found.next_cursor,
        state=state,
        counts=actions.counts(web.reader),
    )
