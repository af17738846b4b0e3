"""The queue as ``scontrol`` shows it to anybody: one process, five questions."""

from __future__ import annotations

from collections.abc import Iterable

import re2

from perdure.backends.owner_requests import owner_requests
from perdure.backends.slurm.config import Config, read_config
from perdure.backends.slurm.het import merge_records
from perdure.backends.slurm.node_records import NodeRecord, read_nodes
from perdure.backends.slurm.picture import user_name
from perdure.backends.slurm.records import MAX_NAME, JobRecord, instant, read_jobs
from perdure.backends.slurm.tools import Dialog, Tools
from perdure.errors import ClusterBusy
from perdure.model.jobs import JobSize, JobState
from perdure.slurm_words.durations import duration_s
from perdure.slurm_words.hostlist import expand
from perdure.slurm_words.states import is_waiting, job_state
from perdure.slurm_words.tres import gpus
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueuedReservation, QueueLook

_PLAIN = re2.compile(r"(?:gres:)?gpu(?::\d+)?")  # no GPU type, and nothing else


def read_queue(tools: Tools) -> QueueLook:
    """Ask Slurm once. Raises `ConfigError` without its tools, `ClusterBusy` where slurmctld does not answer."""
    tools.check()
    with tools.dialog() as scontrol:
        config = read_config(_answer(scontrol, "show config"), scontrol.mark)
        if config.time_s is None:
            raise ClusterBusy("slurmctld", "it does not answer", "Run `scontrol ping`")
        jobs = read_jobs(_answer(scontrol, "show job"), scontrol.mark)
        nodes = read_nodes(_answer(scontrol, "show node"), scontrol.mark)
        partitions = ask_partitions(scontrol)
        reservations = ask_reservations(scontrol)
    queue = queue_of(config.time_s, jobs.whole, nodes, partitions, config.cluster, reservations)
    return look_of(queue, config)


def look_of(queue: Queue, config: Config) -> QueueLook:
    return QueueLook(queue, {key.lower(): value for key, value in config.values.items()})


def queue_of(
    now_s: float,
    records: Iterable[JobRecord],
    nodes: Iterable[NodeRecord],
    partitions: tuple[QueuedPartition, ...],
    cluster: str = "",
    reservations: tuple[QueuedReservation, ...] = (),
) -> Queue:
    """The queue by what the controller knows; jobs that are over are left out."""
    told = list(records)
    waiting = [record for record in told if is_waiting(record.state)]  # parts that run have nodes of their own
    seen = map(_job, (*(record for record in told if not is_waiting(record.state)), *merge_records(waiting)))
    jobs = tuple(job for job in seen if not job.state.is_over)
    return Queue(now_s, jobs, tuple(map(_node, nodes)), partitions, cluster, reservations)


def ask_partitions(scontrol: Dialog) -> tuple[QueuedPartition, ...]:
    """What ``show partition`` tells. Raises `ClusterBusy`."""
    return read_partitions(_answer(scontrol, "show partition"))


def ask_reservations(scontrol: Dialog) -> tuple[QueuedReservation, ...]:
    """What ``show reservation`` prints; empty without reservations. Raises `ClusterBusy` where no answer comes."""
    return read_reservations(scontrol.ask("show reservation").out, scontrol.mark)


def read_partitions(text: bytes) -> tuple[QueuedPartition, ...]:
    """Read the answer to ``show partition``, one a line. Only administrators write text there."""
    found = []
    for line in text.decode("utf-8", "replace").splitlines():
        own = dict(word.partition("=")[::2] for word in line.removeprefix("scontrol: ").split())
        if name := own.get("PartitionName"):
            most = own.get("MaxNodes", "")
            found.append(
                QueuedPartition(
                    name=name,
                    is_up=own.get("State") == "UP",
                    is_default=own.get("Default") == "YES",
                    max_time_s=duration_s(own.get("MaxTime", "")),
                    default_time_s=duration_s(own.get("DefaultTime", "")),
                    max_nodes=int(most) if most.isdecimal() else None,
                    priority_tier=int(own["PriorityTier"]) if own.get("PriorityTier", "").isdecimal() else 1,
                    qos="" if own.get("QoS", "N/A") == "N/A" else own["QoS"],
                )
            )
    return tuple(found)


def read_reservations(text: bytes, mark: str) -> tuple[QueuedReservation, ...]:
    """Read the answer to ``show reservation``, one a line. Only administrators write text there."""
    found = []
    for line in text.decode("utf-8", "replace").splitlines():
        own = dict(word.partition("=")[::2] for word in line.removeprefix("scontrol: ").split())
        begin_s, end_s = (instant(own.get(key, ""), mark) for key in ("StartTime", "EndTime"))
        if (name := own.get("ReservationName")) and begin_s is not None and end_s is not None:
            found.append(QueuedReservation(name, float(begin_s), float(end_s), expand(own.get("Nodes", ""))))
    return tuple(found)


def _job(record: JobRecord) -> QueuedJob:
    state = job_state(record.state, record.priority, record.reason)
    waits, asked = state.is_waiting, owner_requests(record.comment)
    asks = _size(record) if waits else None
    return QueuedJob(
        job_id=record.job_id,
        user=user_name(record.user, record.uid),
        state=JobState.RUNNING if record.state == "COMPLETING" else state,
        partitions=tuple(name for name in record.partition.split(",") if name),
        gpus=asks.gpus if asks else record.gpus,
        cpus=record.cpus,
        nodes=max(1, record.node_count),
        walltime_s=record.walltime_s,
        priority=record.priority,
        submit_s=float(record.submit_s),
        eligible_s=record.eligible_s,
        start_s=record.start_s,
        reason=record.reason,
        dependency=record.dependency,
        account=record.account,
        qos=record.qos,
        required=record.required,
        excluded=record.excluded,
        running_on=() if waits else record.nodes,
        tasks=record.waiting_tasks if waits else 1,
        task_list=record.task_list if waits and record.waiting_tasks > 1 else "",
        most_tasks=record.most_tasks if waits else None,
        reservation=record.reservation if waits else "",
        parts=record.components,
        name=record.name[:MAX_NAME],
        nice=record.nice,
        consent=asked.consent,
        may_requeue=record.requeue and record.is_batch and not record.is_cron,
        asks=asks,
        sizes=asked.sizes if _PLAIN.fullmatch(record.per_node) else (),
    )


def _size(record: JobRecord) -> JobSize | None:
    """What it asks for, where that is so many GPUs on each node and as many tasks on each; else None.

    The total of GPUs does not tell: 22.05 leaves it as it was when the number of nodes is changed.
    """
    each, nodes = gpus(record.per_node), max(1, record.node_count)
    tasks, uneven = divmod(record.tasks, nodes)
    if not each or uneven or not tasks or record.waiting_tasks > 1 or record.components > 1:
        return None
    return JobSize(nodes, max(nodes, record.most_nodes), each, tasks, record.cpus_per_task)


def _node(record: NodeRecord) -> QueuedNode:
    node = record.node
    return QueuedNode(node.name, node.partitions, node.is_usable and not node.is_reserved, node.gpus, record.cpus)


def _answer(scontrol: Dialog, command: str) -> bytes:
    """What scontrol printed. Raises `ClusterBusy` for an error, but for a list that is empty."""
    answer = scontrol.ask(command)
    if answer.err and not answer.out:
        raise ClusterBusy("slurmctld", answer.complaint or "it does not answer", "Run `scontrol ping`")
    return answer.out
