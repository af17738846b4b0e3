"""Actions: the journal of what was done, with a person's hand on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.service.context import Here, Viewer
from perdure.service.controller import undo_of
from perdure.service.journal import ActionState
from perdure.service.pages.render import page
from perdure.service.pages.words import BADGES
from perdure.service.queries import actions, jobs
from perdure.service.queries.actions import ActionRow
from perdure.service.queries.reader import Reader

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
        undoable=undoable(web.reader, found.items),
        next_cursor=found.next_cursor,
        state=state,
        counts=actions.counts(web.reader),
    )


def undoable(reader: Reader, rows: Sequence[ActionRow]) -> frozenset[str]:
    """Keys of those that can be taken back: done, and their job is not over."""
    done = [row for row in rows if row.state == ActionState.DONE and undo_of(row.action) is not None]
    live = jobs.live_among(reader, {row.job_id for row in done if row.job_id})
    return frozenset(row.key for row in done if not row.job_id or row.job_id in live)
