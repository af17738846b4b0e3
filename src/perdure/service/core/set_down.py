"""A job that ended with a node which a person set down: it is said so, with the person's reason. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from perdure.model.jobs import Attempt, AttemptState
from perdure.model.nodes import Node
from perdure.triage.verdict import Verdict

MAX_REASON = 120  # characters


def of_set_down(verdict: Verdict, attempt: Attempt, nodes: Mapping[str, Node]) -> Verdict:
    """The verdict; on a job whose node a person set down, with that in the place of a failure of the node."""
    if attempt.state is not AttemptState.NODE_FAIL or verdict.hardware:
        return verdict
    found = next((node for name in attempt.nodes if (node := nodes.get(name)) and node.is_set_down), None)
    if found is None:
        return verdict
    reason = f": {found.reason[:MAX_REASON]}" if found.reason else ""
    return replace(verdict, summary=f"a person set {found.name} down under the job{reason}")
