"""Nodes: how each stands, what failed there lately, and what may be done to it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.service.context import Here, Viewer
from perdure.service.pages.render import page
from perdure.service.pages.words import DAY_S
from perdure.service.queries import nodes

router = APIRouter()

CARDS = 60
EMBEDDED = "local"


@router.get("/nodes")
def nodes_page(
    request: Request,
    web: Here,
    identity: Viewer,  # noqa: ARG001
    cursor: Annotated[str | None, Query(max_length=256)] = None,
) -> Response:
    """The nodes of the cluster."""
    found = nodes.find_nodes(web.reader, cursor=cursor, limit=CARDS)
    return page(
        request,
        web,
        "nodes",
        "Nodes",
        rows=found.items,
        next_cursor=found.next_cursor,
        failures=nodes.recent_failures(web.reader, web.now() - DAY_S),
        embedded=web.operations.status().backend == EMBEDDED,
    )
