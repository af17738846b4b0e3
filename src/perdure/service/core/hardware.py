"""Broken hardware, shown by the logs of two users' jobs on one node: the service's own word against the node. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain as chained

from perdure.coordination.chain_state import Chain
from perdure.coordination.record import ExceptionRecord, Scope, Subject
from perdure.model.jobs import Attempt
from perdure.retry.history import HOUR_S, Fleet, NodeTrouble

HARDWARE = "node.hardware"
SEVERITY = 1  # an alert
LINE = 200  # characters of a line of evidence


def broken_nodes(
    fleet: Fleet, chain: Chain, cluster: str, attempt: Attempt, detected_by: str, now: float
) -> Iterator[ExceptionRecord]:
    """What is to be raised after the failure of `attempt` was written down: one exception a node that is shown broken.

    Two users' jobs within an hour show it, since the last time that it was raised. One user alone never does, and a
    message that a job, or its owner, showed on another node too says nothing of this one.
    """
    for node in attempt.nodes:
        since_s, is_open = _last(chain, node)
        carried = _shown_elsewhere(fleet, node)
        shown = [
            trouble
            for trouble in fleet.troubles.get(node, ())
            if trouble.hardware
            and trouble.time_s > max(since_s, now - HOUR_S)
            and carried.isdisjoint(_messages(trouble))
        ]
        if not is_open and len({trouble.user for trouble in shown}) > 1:
            yield _raised(shown, cluster, node, detected_by, now)


def _shown_elsewhere(fleet: Fleet, node: str) -> set[tuple[str, str]]:
    """Whose message of broken hardware goes from node to node."""
    others = (troubles for name, troubles in fleet.troubles.items() if name != node)
    return {message for troubles in others for trouble in troubles for message in _messages(trouble)}


def _messages(trouble: NodeTrouble) -> tuple[tuple[str, str], ...]:
    """By job, and by owner and line."""
    return (("job", trouble.job_id), (trouble.user, trouble.hardware)) if trouble.hardware else ()


def _last(chain: Chain, node: str) -> tuple[float, bool]:
    """When it was raised of this node last, and whether that is still open or waits for a person."""
    of_node = [
        record
        for record in chained(chain.open.values(), chain.ended.values())
        if record.type == HARDWARE and record.subject.nodes == (node,)
    ]
    is_open = any(not record.state.is_over or record.needs_a_person for record in of_node)
    return max((record.time_s for record in of_node), default=0.0), is_open


def _raised(shown: list[NodeTrouble], cluster: str, node: str, detected_by: str, now: float) -> ExceptionRecord:
    last = {trouble.user: trouble for trouble in shown}
    jobs = " and ".join(f"{trouble.job_id} of {trouble.user}" for trouble in last.values())
    return ExceptionRecord(
        id=f"{cluster}/{node}:{HARDWARE}:{now:.0f}:{shown[-1].job_id}",
        type=HARDWARE,
        severity=SEVERITY,
        scope=Scope.LOCAL,
        subject=Subject(cluster, nodes=(node,)),
        time_s=now,
        note=f"the logs of jobs {jobs} show broken hardware on {node}",
        detected_by=detected_by,
        evidence=tuple(f"job {t.job_id} of {t.user}: {t.hardware[:LINE]}" for t in last.values()),
    )
