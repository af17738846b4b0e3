"""Nodes: list, drain and return; break one of the embedded cluster."""

from __future__ import annotations

from fastapi import APIRouter

from perdure.service.store.queries import nodes
from perdure.service.web.api.actions import place
from perdure.service.web.api.models import Fault, Listing, NodeItem, Order, Planned, Reason
from perdure.service.web.api.params import IdempotencyKey, LastName, Limit, NodeName
from perdure.service.web.state import Here, Operator, Viewer

router = APIRouter(tags=["nodes"])

NO_REASON = Reason()


@router.get("/nodes")
def list_nodes(web: Here, identity: Viewer, cursor: LastName = None, limit: Limit = 100) -> Listing[NodeItem]:  # noqa: ARG001
    """Nodes, by name."""
    page = nodes.find_nodes(web.reader, cursor=cursor, limit=limit)
    return Listing(items=[NodeItem.of(row) for row in page.items], next_cursor=page.next_cursor)


@router.get("/nodes/{name}")
def get_node(web: Here, identity: Viewer, name: NodeName) -> NodeItem:  # noqa: ARG001
    """One node, as it is now."""
    return NodeItem.of(nodes.node_row(web.reader, name))


@router.post("/nodes/{name}/drain", status_code=202)
def drain(
    web: Here, identity: Operator, name: NodeName, body: Reason = NO_REASON, key: IdempotencyKey = None
) -> Planned:
    """Give a node no new work; what runs there ends by itself."""
    return place(web, identity, Order(kind="drain", node=name, reason=body.reason), key)


@router.post("/nodes/{name}/undrain", status_code=202)
def undrain(
    web: Here, identity: Operator, name: NodeName, body: Reason = NO_REASON, key: IdempotencyKey = None
) -> Planned:
    """Give a drained node work again."""
    return place(web, identity, Order(kind="undrain", node=name, reason=body.reason), key)


@router.post("/nodes/{name}/faults", status_code=204)
def fault(web: Here, identity: Operator, name: NodeName, body: Fault) -> None:  # noqa: ARG001
    """Fail, freeze, thaw or return a node of the embedded cluster. Other clusters refuse."""
    nodes.node(web.reader, name)
    web.operations.fault(name, body.kind)
