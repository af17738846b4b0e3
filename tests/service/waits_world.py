"""A queue as a cluster would tell of it, and a watch on it whose forecasts are made in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.backends.protocol import PastJobs
from perdure.errors import ForecastFailed
from perdure.model.jobs import JobState
from perdure.service.waits.order import ForecastOrder, Forecasts
from perdure.service.waits.promise_store import PromiseStore
from perdure.service.waits.watch import WaitsWatch
from perdure.service.waits.worker import forecasts
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueueLook
from tests.copying import replace
from tests.service.web_world import Site, World

CONFIG = {"prioritytype": "priority/basic"}
NODES = (
    *(QueuedNode(f"gpu{i:02}", ("gpu",), gpus=8, cpus=64) for i in (1, 2)),
    QueuedNode("old1", ("old",), is_usable=False, gpus=4, cpus=32),
)
PARTITIONS = (QueuedPartition("gpu", is_default=True), QueuedPartition("old", is_up=False))


def waiting(job_id: str, now_s: float, gpus: int = 8, **more: Any) -> QueuedJob:
    given = {"user": "mira", "state": JobState.PENDING, "partitions": ("gpu",), "walltime_s": 3600.0, **more}
    return QueuedJob(
        job_id, gpus=gpus, cpus=gpus, priority=1000 - int(job_id), submit_s=now_s - 600, eligible_s=now_s - 600,
        reason=str(given.pop("reason", "Priority")), **given,
    )  # fmt: skip


def running(job_id: str, now_s: float, node: str) -> QueuedJob:
    return QueuedJob(
        job_id, "jonas", JobState.RUNNING, ("gpu",), 8, 8, walltime_s=7200.0, submit_s=now_s - 900,
        eligible_s=now_s - 900, start_s=now_s - 600, running_on=(node,),
    )  # fmt: skip


def queue_at(now_s: float, *jobs: QueuedJob) -> Queue:
    """Two nodes in use, three jobs that wait for them, one that its user holds, and what else is given."""
    held = replace(waiting("14", now_s, 2, reason="JobHeldUser"), state=JobState.HELD)
    there = (
        running("1", now_s, "gpu01"), running("2", now_s, "gpu02"),
        *(waiting(str(number), now_s) for number in (11, 12)), waiting("13", now_s, 16), held, *jobs,
    )  # fmt: skip
    return Queue(now_s, there, NODES, PARTITIONS, "aurora")


class QueueCluster:
    """Tells of a queue, and counts how often it is asked for the past."""

    def __init__(self, queue: Queue | None, past: PastJobs | Exception | None = None) -> None:
        self.queue_now = queue
        self.past = past or PastJobs(None, "sacct", ("this Slurm keeps no accounting",))
        self.asked = 0

    def queue(self) -> QueueLook | None:
        return None if self.queue_now is None else QueueLook(self.queue_now, CONFIG)

    def past_jobs(self, look: QueueLook, since_s: float) -> PastJobs:
        assert since_s < look.queue.now_s
        self.asked += 1
        if isinstance(self.past, Exception):
            raise self.past
        return self.past


def failing(order: ForecastOrder) -> Forecasts:
    raise ForecastFailed("forecasts of waiting jobs", f"took too long for {len(order.look.queue.jobs)} jobs", "Wait")


def watch_of(world: World, folder: Path, *jobs: QueuedJob) -> tuple[WaitsWatch, QueueCluster]:
    cluster = QueueCluster(queue_at(world.now, *jobs))
    store = PromiseStore(world.journal.store, world.cluster)
    return WaitsWatch(cluster, store, folder / "waits", lambda: world.now, forecasts), cluster


def watched(place: Site, folder: Path, *jobs: QueuedJob) -> WaitsWatch:
    """The site with its waiting jobs forecast once."""
    watch, _ = watch_of(place.world, folder, *jobs)
    watch.turn()
    place.app.state.web = replace(place.app.state.web, waits=watch)
    return watch
