"""Actions: the journal of what was done, with a person's hand on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.service.store.journal import ActionState
from perdure.service.store.queries import actions, jobs, nodes
from perdure.service.store.queries.actions import ListedAction
from perdure.service.store.queries.reader import MAX_LIMIT, Page, Reader
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
from perdure.service.web.state import Here, Viewer

router = APIRouter()

ROWS = 50


COLUMNS: Columns[ListedAction] = (
    ("key", lambda row: row.key),
    ("action", lambda row: row.kind),
    ("state", lambda row: row.state),
    ("job_id", lambda row: row.job_id),
    ("node", lambda row: row.node),
    ("by", lambda row: row.by),
    ("reason", lambda row: row.reason),
    ("detail", lambda row: row.detail),
    ("decided", lambda row: at(row.created_s)),
    ("begun", lambda row: at(row.started_s)),
    ("ended", lambda row: at(row.ended_s)),
)


@router.get("/actions")
def actions_page(
    request: Request,
    web: Here,
    identity: Viewer,  # noqa: ARG001
    asked: Wanted,
    state: Annotated[str, Query(max_length=20)] = "",
    job: Word = "",
) -> Response:
    """The journal of actions, as a page or as CSV."""
    state, job = known_value("state", state, BADGES["action"]), job.strip()
    within, order = asked.within(web.now()), asked.order(actions.SORTED_BY)

    def read(cursor: str | None, limit: int = MAX_LIMIT) -> Page[ListedAction]:
        return actions.find_actions(
            web.reader, states=[state] if state else [], job_id=job, user=asked.user, partition=asked.partition,
            decided=within, order=order, cursor=cursor, limit=limit,
        )  # fmt: skip

    if asked.is_csv:
        return csv_file("actions", COLUMNS, every(read))
    found = read(asked.cursor, ROWS)
    listing = ListingAddress("/actions", asked, {"state": state, "job": job}, tuple(actions.SORTED_BY))
    counts = actions.counts(web.reader, job_id=job, user=asked.user, partition=asked.partition, decided=within)
    may_undo = undoable(web.reader, found.items)
    return show(request, web, "actions", "Actions", listing, found, BADGES["action"], undoable=may_undo, counts=counts)


def undoable(reader: Reader, rows: Sequence[ListedAction]) -> frozenset[str]:
    """Keys of those that can be taken back: done, and what they did has not passed since."""
    done = [row for row in rows if row.state == ActionState.DONE and row.action.undo() is not None]
    named, job_ids = {row.node for row in done if row.node}, {row.job_id for row in done if row.job_id}
    latest = actions.latest_done(reader, named, job_ids)
    still = nodes.out_of_service(reader, named) | jobs.waiting_among(reader, job_ids)
    return frozenset(row.key for row in done if row.key in latest and (row.node or row.job_id) in still)
