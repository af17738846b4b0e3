"""The embedded cluster's queue, in the form in which policies and forecasts read queues."""

from __future__ import annotations

from perdure.backends.local.core import Core
from perdure.backends.local.records import PARTITION, AttemptRecord, LocalJob
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueueLook


def queue_of(core: Core, cluster: str, now: float) -> QueueLook:
    """Who runs and who waits; what an attempt that is being ended has is still its own."""
    jobs = tuple(_told(job, core.running.get(job.job_id)) for job in core.jobs.values() if not job.state.is_over)
    nodes = tuple(
        QueuedNode(node.name, (PARTITION,), node.takes_work, node.gpus, node.slots) for node in core.nodes.values()
    )
    partition = QueuedPartition(PARTITION, is_default=True)
    return QueueLook(Queue(now, jobs, nodes, (partition,), cluster), {})


def _told(job: LocalJob, attempt: AttemptRecord | None) -> QueuedJob:
    spec = job.spec
    return QueuedJob(
        job_id=job.job_id,
        user=spec.user,
        state=job.state,
        partitions=(PARTITION,),
        gpus=spec.gpus_per_node * job.node_count,
        nodes=job.node_count,
        walltime_s=spec.walltime_s,
        priority=job.priority,
        submit_s=job.submit_s,
        eligible_s=job.eligible_s,
        start_s=attempt.start_s if attempt else None,
        reason="" if job.reason in ("requeued", "node_fail", "preempted") else job.reason,
        required=job.required,
        excluded=job.excluded,
        running_on=attempt.nodes if attempt else (),
        name=spec.name,
        nice=job.nice,
        consent=spec.consent,
        may_requeue=job.may_restart,
    )
