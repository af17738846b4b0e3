"""Nodes: their conditions, taints and GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.backends.kubernetes.marks import DRAINED, GIVEN_UP, NODE_REASON
from perdure.backends.kubernetes.objects import Document, annotation, fields, instant, items, name_of, text
from perdure.backends.kubernetes.runs import gpus_in
from perdure.model.nodes import Node, NodeState

_BAD_WHEN_TRUE = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
PERDURE = "perdure"


def is_down(node: Document) -> bool:
    """Whether it does not answer, or was given up."""
    return bool(_ready(node).get("status") != "True") or is_given_up(node)


def is_given_up(node: Document) -> bool:
    return has_taint(node, GIVEN_UP) or has_taint(node, OUT_OF_SERVICE)


def has_taint(node: Document, key: str) -> bool:
    return any(taint.get("key") == key for taint in items(node, "spec", "taints"))


def node_of(document: Document, used: Mapping[str, int], busy: frozenset[str]) -> Node:
    """A node; `used` has GPUs in use by node, `busy` the nodes on which jobs run."""
    name = name_of(document)
    ready = _ready(document)
    given_up, ours = is_given_up(document), has_taint(document, DRAINED) or has_taint(document, GIVEN_UP)
    is_closed = fields(document, "spec").get("unschedulable") is True or has_taint(document, DRAINED)
    if is_down(document):
        state = NodeState.DOWN
    elif is_closed:
        state = NodeState.DRAINING if name in busy else NodeState.DRAINED
    else:
        state = NodeState.UP
    return Node(
        name,
        state,
        reason=_reason(document, ready, state),
        gpus=gpus_in(fields(document, "status", "allocatable")),
        gpus_used=used.get(name, 0),
        since_s=instant(ready, "lastTransitionTime") if state is NodeState.DOWN and not given_up else None,
        by=PERDURE if ours else "",
        is_set_down=given_up,
    )


def _ready(node: Document) -> Document:
    return next((c for c in items(node, "status", "conditions") if c.get("type") == "Ready"), {})


def _reason(node: Document, ready: Document, state: NodeState) -> str:
    """Why it is not as it should be: Perdure's own words, then the node's, then those of its monitors."""
    if has_taint(node, DRAINED) or has_taint(node, GIVEN_UP):
        return " ".join(annotation(node, NODE_REASON).split())
    if state is NodeState.DOWN:
        return f"{text(ready, 'reason')}: {text(ready, 'message')}".strip(": ") or "it has never been ready"
    if state in (NodeState.DRAINING, NodeState.DRAINED):
        return "cordoned"
    bad = (
        c for c in items(node, "status", "conditions") if c.get("type") in _BAD_WHEN_TRUE and c.get("status") == "True"
    )
    return "; ".join(f"{text(c, 'type')}: {text(c, 'message')}".strip(": ") for c in bad)
