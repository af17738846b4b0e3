"""Actions: the journal of what was done, and a person's hand on it."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Query

from perdure.errors import InputError
from perdure.model.actions import KINDS
from perdure.service.access.auth import Identity
from perdure.service.core.orders import NODE_KINDS, job_order, node_order, one_line
from perdure.service.store.journal import ActionState
from perdure.service.store.queries import actions, jobs, nodes
from perdure.service.web.api.models import ActionItem, Listing, Order, Planned, StatusItem, Switch
from perdure.service.web.api.params import Cursor, IdempotencyKey, Limit, OfJob, Word
from perdure.service.web.api.status import standing
from perdure.service.web.state import Here, Operator, Viewer, WebState

router = APIRouter(tags=["actions"])

RETRY_IS = "requeue"
"""The kind of action that an order to retry plans."""
OF_KIND = f"Only of this kind: {', '.join(KINDS)}, or retry, which is requeue"
ActionKey = Annotated[str, Path(min_length=1, max_length=600, description="Key of the action, from a listing")]


@router.get("/actions")
def list_actions(
    web: Here,
    identity: Viewer,  # noqa: ARG001
    state: Annotated[list[ActionState] | None, Query(description="Only actions in this state; repeatable")] = None,
    kind: Annotated[Word, Query(description=OF_KIND, json_schema_extra={"enum": ["", "retry", *KINDS]})] = "",
    job_id: OfJob = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[ActionItem]:
    """Actions, the latest first."""
    kind = RETRY_IS if kind == "retry" else kind
    if kind and kind not in KINDS:
        raise InputError("query.kind", f"no action is called {kind[:80]!r}", f"Use {', '.join(KINDS)}")
    page = actions.find_actions(web.reader, states=state or (), kind=kind, job_id=job_id, cursor=cursor, limit=limit)
    return Listing(items=[ActionItem.of(row) for row in page.items], next_cursor=page.next_cursor)


@router.post("/actions", status_code=202)
def post_order(web: Here, identity: Operator, order: Order, key: IdempotencyKey = None) -> Planned:
    """Plan an action in one's own name. It is carried out soon, unless the service is in shadow mode or stopped."""
    return place(web, identity, order, key)


@router.post("/actions/{key:path}/withhold", status_code=204)
def withhold(web: Here, identity: Operator, key: ActionKey) -> None:
    """Keep a planned action from being begun."""
    actions.action(web.reader, key)
    web.operations.withhold(key, identity.user)


@router.post("/actions/{key:path}/undo", status_code=202)
def undo(web: Here, identity: Operator, key: ActionKey) -> Planned:
    """Plan the action that takes a finished one back."""
    actions.action(web.reader, key)
    return Planned(key=web.operations.undo(key, identity.user))


@router.post("/kill-switch")
def kill_switch(web: Here, identity: Operator, switch: Switch) -> StatusItem:
    """Turn the kill switch: while it is on, no action is begun."""
    note = web.operations.stop_all(switch.on, identity.user)
    return standing(web).model_copy(update={"note": note})


def place(web: WebState, identity: Identity, order: Order, key: str | None) -> Planned:
    """Plan what an operator asks for. Raises `PerdureError` where it makes no sense."""
    return web.replies.once(identity.user, key, order, "order", lambda: _placed(web, identity, order, key))


def _placed(web: WebState, identity: Identity, order: Order, key: str | None) -> Planned:
    reason = one_line(order.reason) or f"asked for by {one_line(identity.user)}"
    if order.kind in NODE_KINDS:
        if order.job_id or not order.node:
            raise InputError("node", f"{order.kind} is about one node and no job", "Give node, and no job_id")
        nodes.node(web.reader, order.node)
        action = node_order(order.kind, order.node, reason, _episode(web.reader.cluster, identity, key))
    else:
        if order.node or not order.job_id:
            raise InputError("job_id", f"{order.kind} is about one job and no node", "Give job_id, and no node")
        found = jobs.job_detail(web.reader, order.job_id)
        latest = found.attempts[0].attempt if found.attempts else None
        kind = "retry" if order.kind == RETRY_IS else order.kind
        action = job_order(kind, found.job, latest, tuple(map(one_line, order.exclude)))
    return Planned(key=web.operations.order(action, identity.user, reason))


def _episode(cluster: str, identity: Identity, key: str | None) -> str:
    """Made from the idempotency key where there is one, so that it holds across restarts of the service.

    Clusters that share a database have nodes of the same names, and tools that send the same keys to each.
    """
    if key is None:
        return secrets.token_hex(6)
    return hashlib.sha256(f"{cluster}\n{identity.user}\n{key}".encode("utf-8", "replace")).hexdigest()[:12]
