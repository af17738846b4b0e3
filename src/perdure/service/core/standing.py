"""How a cluster stands in a few numbers, for the list of all clusters."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from perdure.model.jobs import JobState
from perdure.model.observation import MANAGER
from perdure.service.core.case import ControllerState


class ClusterStanding(Struct, frozen=True):
    """What a cluster's service says of it."""

    running: int = 0
    waiting: int = 0
    nodes: int = 0
    nodes_out: int = 0  # that take no new work
    escalated: int = 0  # exceptions that wait for a person
    is_silent: bool = False  # the resource manager does not answer


def standing_of(state: ControllerState) -> ClusterStanding:
    """The numbers of the latest look."""
    jobs = Counter(job.state for job in state.known.jobs.values())
    nodes = state.known.nodes.values()
    return ClusterStanding(
        running=jobs[JobState.RUNNING],
        waiting=jobs[JobState.PENDING] + jobs[JobState.HELD],
        nodes=len(nodes),
        nodes_out=sum(not node.is_usable for node in nodes),
        escalated=sum(record.needs_a_person for record in state.chain.ended.values()),
        is_silent=MANAGER in state.known.unseen,
    )
