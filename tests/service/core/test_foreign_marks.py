"""Signs of another service that acts on the same cluster."""

from perdure.model.events import NodeChanged
from perdure.model.nodes import Node, NodeState
from perdure.service.core.foreign_marks import FRESH_S, foreign_marks
from perdure.service.core.messages import Journalled
from tests.copying import replace

NODE = Node("n1", NodeState.DRAINED, "bad fan [perdure e1]", since_s=100.0)


def seen(node: Node, ours: tuple[str, ...] = ()) -> list[Node]:
    return foreign_marks([Journalled(NodeChanged(110.0, "c", node))], lambda key: key in ours, 110.0)


def test_a_fresh_mark_that_is_not_ours_is_anothers() -> None:
    assert seen(NODE) == [NODE]
    assert seen(NODE, ours=("drain:n1:e1",)) == []
    assert seen(NODE, ours=("down:n1:e1",)) == []
    assert seen(replace(NODE, reason="by hand")) == []
    assert seen(replace(NODE, since_s=100.0 - FRESH_S)) == []
