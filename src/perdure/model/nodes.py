"""Nodes, as a resource manager reports them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class NodeState(StrEnum):
    """What a node can be used for."""

    UP = "up"
    DRAINING = "draining"  # no new work; running work ends by itself
    DRAINED = "drained"
    DOWN = "down"
    UNKNOWN = "unknown"


class Node(Struct, frozen=True):
    """One machine of the cluster."""

    name: str
    state: NodeState
    reason: str = ""
    gpus: int = 0
    gpus_used: int = 0
    since_s: float | None = None  # when it came into this state; None where not known
    partitions: tuple[str, ...] = ()  # that it belongs to; () where there are none
    by: str = ""  # who wrote the reason, where that is known
    is_reserved: bool = False  # for some users or for maintenance: no other job starts there for now
    is_set_down: bool = False  # by a person, not by the resource manager: what ends there then is no fault of the node

    @property
    def is_usable(self) -> bool:
        """True where jobs may be put. A state that is not known is no reason to give a node up."""
        return self.state in (NodeState.UP, NodeState.UNKNOWN)
