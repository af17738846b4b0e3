"""Queues for tests of the policy in force: nodes of four GPUs in one partition."""

from __future__ import annotations

from typing import Any

from perdure.model.jobs import JobState, PolicyConsent
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueueLook

NOW_S = 1_000_000.0
CONFIG = {"prioritytype": "priority/multifactor"}
GPUS = 4


def waiting(job_id: str, priority: int, gpus: int = 1, **more: Any) -> QueuedJob:
    """Submitted in the order of the ids."""
    submit_s = NOW_S - 10_000 + int(job_id)
    given: dict[str, Any] = {
        "user": "mira", "state": JobState.PENDING, "partitions": ("main",), "gpus": gpus, "priority": priority,
        "submit_s": submit_s, "eligible_s": submit_s, "reason": "Priority", "consent": PolicyConsent.ORDER,
    }  # fmt: skip
    return QueuedJob(job_id, **{**given, **more})


def running(job_id: str, ran_s: float, on: tuple[str, ...], gpus: int = GPUS, **more: Any) -> QueuedJob:
    given: dict[str, Any] = {
        "user": "jonas", "state": JobState.RUNNING, "partitions": ("main",), "gpus": gpus, "nodes": len(on),
        "submit_s": NOW_S - ran_s - 10, "start_s": NOW_S - ran_s, "running_on": on, "consent": PolicyConsent.PREEMPT,
        "priority": 1,
    }  # fmt: skip
    return QueuedJob(job_id, **{**given, **more})


def look(*jobs: QueuedJob, nodes: int = 2, **config: str) -> QueueLook:
    machines = tuple(QueuedNode(f"n{at}", ("main", "other"), gpus=GPUS, cpus=8) for at in range(1, nodes + 1))
    parts = (QueuedPartition("main", is_default=True), QueuedPartition("other"))
    return QueueLook(Queue(NOW_S, jobs, machines, parts, "aurora"), {**CONFIG, **config})
