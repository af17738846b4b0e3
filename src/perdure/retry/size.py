"""On how many nodes a job is restarted, where its owner allows fewer than it began with."""

from __future__ import annotations

from collections.abc import Collection

from perdure.model.jobs import Job
from perdure.retry.history import Fleet


def restart_range(job: Job) -> tuple[int, int]:
    """The fewest and the most nodes that a restart of `job` may have; equal where its owner said nothing."""
    return job.restart_nodes or (job.node_count, job.node_count)


def restart_size(job: Job, avoid: Collection[str], fleet: Fleet) -> int:
    """How many nodes a restart asks for, away from `avoid`. 0: as many as the job asks for already.

    The most that the owner allows where this many nodes can be used, whether busy or not; else as many as can be used,
    but never fewer than the owner allows or than the job requires by name: then it waits for a node to come back.
    """
    if job.restart_nodes is None or not fleet.usable:
        return 0
    fewest, most = job.restart_nodes
    barred = {*job.excluded, *avoid}
    left = fleet.nodes_for(job.partition) - barred
    return min(most, max(fewest, len(left), len(set(job.required) - barred)))
