"""Failures that read like a node's and are not: a person set it down, or launches failed alike on several nodes.

The reverse is in `one_node`: failures that read like a mistake of the user and are one node's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perdure.model.jobs import Attempt, AttemptState
from perdure.model.nodes import Node
from perdure.retry.history import PastFailure
from perdure.triage.evidence.scheduler import has_failed_to_launch
from perdure.triage.verdict import Bound, Label, Verdict

MOST_NAMED = 4  # nodes in a sentence
MAX_REASON = 120  # characters


def of_set_down(verdict: Verdict, attempt: Attempt, nodes: Mapping[str, Node]) -> Verdict:
    """The verdict; where a person set the job's node down, its summary says so instead of blaming the node."""
    if attempt.state is not AttemptState.NODE_FAIL or verdict.hardware:
        return verdict
    found = next((node for name in attempt.nodes if (node := nodes.get(name)) and node.is_set_down), None)
    if found is None:
        return verdict
    reason = f": {found.reason[:MAX_REASON]}" if found.reason else ""
    return replace(verdict, summary=f"a person set {found.name} down under the job{reason}")


def of_launches(verdict: Verdict, attempt: Attempt, past: Sequence[PastFailure]) -> Verdict:
    """The verdict; for a launch that failed on other nodes before, with a summary and advice that blame no node.

    `past` holds the job's earlier failures, oldest first. The chance that a retry passes is left to the decision, which
    weighs each return.
    """
    if not has_failed_to_launch(attempt) or verdict.bound is not Bound.NODE:
        return verdict
    nodes = [node for before in past if before.fingerprint == verdict.fingerprint for node in before.nodes]
    places = list(dict.fromkeys([*nodes, *attempt.nodes]))
    if len(places) == len(attempt.nodes):
        return verdict
    more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
    where = ", ".join(places[:MOST_NAMED]) + more
    return replace(
        verdict,
        label=Label.UNSURE,
        summary=f"{verdict.summary}, on {where} alike",
        advice=f"It did not start on {where}: look at what the job needs before its program starts (its directories,"
        " its container image, its prolog) and at what these nodes share.",
    )
