"""Signs of another Perdure that acts on the same cluster: marks on nodes that this one did not leave. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from perdure.model.actions import Down, Drain
from perdure.model.events import NodeChanged
from perdure.model.nodes import Node
from perdure.service.core.messages import Effect, Journalled

FRESH_S = 3600.0
_MARK = re.compile(r"\[perdure ([^\[\]]{1,200})\]")


def foreign_marks(effects: Iterable[Effect], is_ours: Callable[[str], bool], now: float) -> list[Node]:
    """Nodes that were taken out of service within the hour under a mark that names none of our actions.

    `is_ours` is told the key of an action.
    """
    found = []
    for effect in effects:
        if not isinstance(effect, Journalled) or not isinstance(effect.event, NodeChanged):
            continue
        node = effect.event.node
        mark = _MARK.search(node.reason)
        if mark is None or node.since_s is None or now - node.since_s > FRESH_S:
            continue
        if not any(is_ours(take_out(node.name, "", mark[1]).key) for take_out in (Drain, Down)):
            found.append(node)
    return found
