"""Each partition at a glance: what is free, who waits, how long waits were, and how long the next job would."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from perdure.model.jobs import JobState
from perdure.waits.answer import AnswerBasis, answer
from perdure.waits.forecast import WaitForecast
from perdure.waits.past import DAY_S, Past
from perdure.waits.queue import Queue, QueuedJob, QueuedPartition

PROBE_S = 4 * 3600.0  # the limit of the job that is asked about, where the partition allows as much
NOBODY = ""  # the user of that job


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One partition."""

    partition: str
    is_up: bool
    nodes: int  # in service
    nodes_out: int
    gpus: int  # in service
    gpus_free: int
    waiting: int  # jobs
    waiting_gpus: int
    started_last_day: int  # jobs
    wait_last_day_s: float | None  # median of those; None where none started
    next: WaitForecast | None  # of a job with one GPU (one node, where there are none), submitted now

    def to_json(self) -> dict[str, Any]:
        told = {name: value for name, value in asdict(self).items() if name != "next"}
        if self.next is not None:
            low_s, high_s = self.next.interval_s
            told["next_wait_s"] = {"p10": low_s, "p50": self.next.median_s, "p90": high_s}
        return told


def board(queue: Queue, site: AnswerBasis, rng: Generator) -> list[BoardRow]:
    """All partitions, in the manager's own order."""
    return [_row(each, queue, site, rng) for each in queue.partitions]


def _row(partition: QueuedPartition, queue: Queue, site: AnswerBasis, rng: Generator) -> BoardRow:
    nodes = queue.nodes_of((partition.name,))
    usable = [node for node in nodes if node.is_usable]
    total = sum(node.gpus for node in usable)
    names = {node.name for node in usable}
    held = sum(_share(job, names) for job in queue.running())
    waits = [job for job in queue.waiting() if partition.name in job.partitions]
    started, median_s = _last_day(site.past, partition.name, queue.now_s)
    return BoardRow(
        partition.name,
        partition.is_up,
        len(usable),
        len(nodes) - len(usable),
        total,
        max(0, total - round(held)),
        sum(job.tasks for job in waits),
        sum(job.gpus * job.tasks for job in waits),
        started,
        median_s,
        _next(partition, queue, site, rng, total) if partition.is_up and usable else None,
    )


def _share(job: QueuedJob, nodes: set[str]) -> float:
    """GPUs of a running job on some nodes."""
    if not job.running_on:
        return 0.0
    return job.gpus * sum(name in nodes for name in job.running_on) / len(job.running_on)


def _last_day(past: Past, partition: str, now_s: float) -> tuple[int, float | None]:
    jobs = past.jobs
    recent = (jobs.partition == partition) & (jobs.start_s > now_s - DAY_S)
    if not recent.any():
        return 0, None
    came = np.where(np.isfinite(jobs.eligible_s), jobs.eligible_s, jobs.submit_s)
    return int(recent.sum()), float(np.median((jobs.start_s - came)[recent]))


def _next(
    partition: QueuedPartition, queue: Queue, site: AnswerBasis, rng: Generator, gpus: int
) -> WaitForecast | None:
    waiting = [job.priority for job in queue.waiting() if partition.name in job.partitions]
    probe = QueuedJob(
        job_id="",
        user=NOBODY,
        state=JobState.PENDING,
        partitions=(partition.name,),
        gpus=min(1, gpus),
        cpus=1,
        walltime_s=min(PROBE_S, partition.max_time_s or PROBE_S),
        priority=min(waiting, default=1),
        submit_s=queue.now_s,
        eligible_s=queue.now_s,
    )
    return answer(probe, queue, site, rng, with_alternatives=False).forecast
