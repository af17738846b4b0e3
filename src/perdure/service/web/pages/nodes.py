"""Nodes: how each stands, what failed there recently, and what may be done to it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from perdure.backends.registry import BACKENDS
from perdure.coordination.record import ExceptionRecord
from perdure.service.access.auth import Identity
from perdure.service.store.queries import actions, jobs, nodes, suspects
from perdure.service.store.queries.nodes import NodeFailure, NodeRow
from perdure.service.store.queries.reader import MAX_LIMIT, Page
from perdure.service.store.queries.waits import drained_by, waits_for
from perdure.service.web.api.params import NodeName
from perdure.service.web.pages.actions import undoable
from perdure.service.web.pages.exceptions import shown_to
from perdure.service.web.pages.labels import BADGES, DAY_S
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, at, csv_file, every, known_value, show
from perdure.service.web.pages.render import page
from perdure.service.web.state import Here, Viewer, WebState

router = APIRouter()

CARDS = 60
FAILED_WITHIN_S = 7 * DAY_S
ROWS = 50

COLUMNS: Columns[NodeRow] = (
    ("node", lambda row: row.node.name),
    ("state", lambda row: row.node.state.value),
    ("since", lambda row: at(row.node.since_s if row.node.since_s is not None else row.changed_s)),
    ("reason", lambda row: row.node.reason),
    ("gpus", lambda row: row.node.gpus),
    ("gpus_used", lambda row: row.gpus_used),
    ("partitions", lambda row: row.node.partitions),
)


@router.get("/nodes")
def nodes_page(
    request: Request,
    web: Here,
    identity: Viewer,  # noqa: ARG001
    asked: Wanted,
    state: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """The nodes of the cluster, as a page or as CSV."""
    state, order = known_value("state", state, BADGES["node"]), asked.order(nodes.SORTED_BY)

    def read(cursor: str | None, limit: int = MAX_LIMIT) -> Page[NodeRow]:
        states = [state] if state else []
        return nodes.find_nodes(
            web.reader, states=states, partition=asked.partition, order=order, cursor=cursor, limit=limit
        )

    if asked.is_csv:
        return csv_file("nodes", COLUMNS, every(read))
    found = read(asked.cursor, CARDS)
    listing = ListingAddress("/nodes", asked, {"state": state}, tuple(nodes.SORTED_BY))
    return show(
        request,
        web,
        "nodes",
        "Nodes",
        listing,
        found,
        BADGES["node"],
        partitions=[(name, listing.link(partition=name)) for name in ("", *nodes.partitions(web.reader))],
        failures=nodes.recent_failures(web.reader, web.now() - DAY_S),
        by=drained_by(web.reader, [row.node for row in found.items]),
        embedded=_is_playground(web),
    )


@router.get("/nodes/{name}")
def node_page(request: Request, web: Here, identity: Viewer, name: NodeName, asked: Wanted) -> Response:
    """All about one node; what failed on it also as CSV."""
    found = nodes.node_row(web.reader, name)
    failed = nodes.failures_on(web.reader, name, web.now() - FAILED_WITHIN_S)
    named = jobs.names_of(web.reader, {failure.job_id for failure in failed})
    if asked.is_csv:
        columns: Columns[NodeFailure] = (
            ("time", lambda row: at(row.time_s)),
            ("job_id", lambda row: row.job_id),
            ("name", lambda row: named[row.job_id].name if row.job_id in named else ""),
            ("user", lambda row: named[row.job_id].user if row.job_id in named else ""),
            ("cause", lambda row: row.category),
            ("decision", lambda row: row.decision),
        )
        return csv_file("node-failures", columns, failed)
    running = nodes.running_on(web.reader, name)
    acts = actions.actions_on_nodes(web.reader, [name], limit=ROWS)
    return page(
        request,
        web,
        "node",
        name,
        row=found,
        node=found.node,
        by=drained_by(web.reader, [found.node]),
        failed=failed[:ROWS],
        more_failed=max(0, len(failed) - ROWS),
        jobs=named,
        running=running,
        runs=jobs.names_of(web.reader, {attempt.id.job_id for attempt in running}),
        waiting=waits_for(web.reader, name),
        suspected=[row.standing for row in suspects.standing(web.reader) if _names(row, name)],
        told=_told(web, identity, name),
        acts=acts,
        undoable=undoable(web.reader, acts),
        embedded=_is_playground(web),
    )


def _is_playground(web: WebState) -> bool:
    kind = BACKENDS.get(web.operations.status().backend)
    return kind is not None and kind.is_playground


def _names(row: suspects.SuspectRow, name: str) -> bool:
    return any(tier == "node" and one == name for tier, one in row.standing.accusation.components)


def _told(web: WebState, identity: Identity, name: str) -> list[ExceptionRecord]:
    """Open exceptions about the node, of those that who asks may see."""
    chain = web.operations.coordinator.chain()
    about = [record for record in chain.open.values() if name in record.subject.nodes]
    return list(shown_to(web, identity, about))
