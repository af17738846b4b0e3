"""A queue as the simulator's own pass sees it: the jobs that opted in are its rows, on what others leave of the nodes.

Made from nothing at each look: what a policy has to remember of a job is in the spans in which the job ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.placed import Placed
from perdure.scheduling.placement.room import Shares
from perdure.scheduling.protocol import RankingPolicy, ResumingRanking, Span
from perdure.simulation.allocation import Passes
from perdure.simulation.workload import Workload
from perdure.simulation.world import World, world_of
from perdure.waits.queue import Queue, QueuedJob, QueuedNode

Ran = tuple[float, float]  # seconds since the epoch: since when a job ran, and until when


@dataclass(frozen=True, slots=True)
class QueuePicture:
    """The rows of a pass, and what the pass is made with. `history`: earlier spans of each job, by its id."""

    jobs: tuple[QueuedJob, ...]  # in the order in which they came; those that run may be put back
    nodes: tuple[QueuedNode, ...]  # usable ones
    free: tuple[int, ...]  # GPUs of each node that are not held by jobs outside the rows
    now_s: float
    history: Mapping[str, Sequence[Ran]]


@dataclass(frozen=True, slots=True)
class GpuPass:
    """What a policy wants, as places of jobs: who is considered in which order, who starts, and who makes room."""

    order: tuple[int, ...]
    starts: tuple[int, ...]
    yields: tuple[int, ...]


def picture_of(queue: Queue, rows: Sequence[QueuedJob], history: Mapping[str, Sequence[Ran]]) -> QueuePicture:
    """The picture of some jobs of a queue, the `rows`; all other jobs that run keep what they have."""
    nodes = tuple(node for node in queue.nodes if node.is_usable and node.gpus > 0)
    place = {node.name: at for at, node in enumerate(nodes)}
    free, own = [node.gpus for node in nodes], {job.job_id for job in rows}
    for job in queue.running():
        if job.job_id not in own:
            for node, gpus in shares_of(job, place):
                free[node] = max(0, free[node] - gpus)
    ordered = sorted(rows, key=lambda job: (came_s(job, history), job_number(job.job_id), job.job_id))
    return QueuePicture(tuple(ordered), nodes, tuple(free), queue.now_s, history)


def came_s(job: QueuedJob, history: Mapping[str, Sequence[Ran]]) -> float:
    """When a job came: its submit, which Slurm sets anew when it is put back, or its first start."""
    starts = [since_s for since_s, _ in history.get(job.job_id, ())]
    if job.is_running and job.start_s is not None:
        starts.append(job.start_s)
    return min([job.submit_s, *starts])


def shares_of(job: QueuedJob, place: Mapping[str, int]) -> Shares:
    """What a running job has of the usable nodes, in equal parts."""
    each, rest = divmod(job.gpus, max(1, len(job.running_on)))
    parts = ((place.get(name), each + (at < rest)) for at, name in enumerate(job.running_on))
    return tuple((node, gpus) for node, gpus in parts if node is not None and gpus)


def job_number(job_id: str) -> int:
    """By which a manager tells who came first, where it cannot otherwise."""
    digits = job_id.partition("_")[0].partition("+")[0]
    return int(digits) if digits.isdecimal() else 0


def pass_over(picture: QueuePicture, policy: RankingPolicy) -> GpuPass:
    """Give the GPUs as the policy does in a simulation, once."""
    if not picture.jobs:
        return GpuPass((), (), ())
    world, passes = _resumed(picture, policy)
    order = tuple(passes.ranking.order())
    waiting = list(world.view.waiting)
    runs = list(world.view.running)
    passes.give()
    starts = tuple(row for row in waiting if row in world.view.running)
    return GpuPass(order, starts, tuple(row for row in runs if row not in world.view.running))


def order_of(picture: QueuePicture, policy: RankingPolicy) -> tuple[int, ...]:
    """The jobs in the policy's order; those that it does not name come last."""
    if not picture.jobs:
        return ()
    _, passes = _resumed(picture, policy)
    named = dict.fromkeys(passes.ranking.order())
    return (*named, *(row for row in range(len(picture.jobs)) if row not in named))


def _resumed(picture: QueuePicture, policy: RankingPolicy) -> tuple[World, Passes]:
    """The world as it is now, and the policy at work in it."""
    jobs = Workload.of(_table(picture))
    nodes = tuple(job.nodes for job in picture.jobs)
    room = Placed.on(Cluster(np.array(picture.free, np.int64)), AsAsked(nodes), jobs.ticks_per_s)
    world = world_of(jobs, room, None, None)
    passes, view = Passes(world, policy), world.view
    ranking = passes.ranking
    if isinstance(ranking, ResumingRanking):
        world.on_arrival = lambda _: None
    now = _tick(jobs, picture.now_s)
    spans = {row: _spans(jobs, job, picture, now) for row, job in enumerate(picture.jobs)}
    place = {node.name: at for at, node in enumerate(picture.nodes)}
    barred = _Barred(picture.nodes)
    for row, job in enumerate(picture.jobs):
        view.now = int(jobs.submit[row])
        world.come(row)
        if found := barred.of(job):
            room.avoided[row] = found
    for row in sorted((row for row, job in enumerate(picture.jobs) if job.is_running), key=lambda row: spans[row][-1]):
        view.now = spans[row][-1][0]
        world.start(row, shares_of(picture.jobs[row], place))
    for row, lived in spans.items():
        earlier = lived[:-1] if row in view.running else lived
        view.before[row] = sum(until - since for since, until in earlier)
    view.now = now
    if isinstance(ranking, ResumingRanking):
        ranking.resume(spans)
    return world, passes


def _table(picture: QueuePicture) -> JobTable:
    jobs, now_s = picture.jobs, picture.now_s
    return JobTable(
        job_id=np.array([job.job_id for job in jobs], np.str_),
        submit_s=np.array([min(came_s(job, picture.history), now_s) for job in jobs]),
        gpus=np.array([job.gpus for job in jobs], np.int64),
        duration_s=np.array([job.walltime_s or 0.0 for job in jobs]),  # nobody knows: no policy in force reads it
        user=np.array([job.user for job in jobs], np.str_),
        vc=np.array([job.account for job in jobs], np.str_),
        walltime_s=np.array([job.walltime_s or np.nan for job in jobs]),
        nodes=np.array([job.nodes for job in jobs], np.int64),
    )


def _tick(jobs: Workload, instant_s: float) -> int:
    return round((instant_s - jobs.origin_s) * jobs.ticks_per_s)


def _spans(jobs: Workload, job: QueuedJob, picture: QueuePicture, now: int) -> list[Span]:
    """The spans in which a job ran, in order and none before the end of the one before it."""
    ran = sorted(picture.history.get(job.job_id, ()))
    if job.is_running and job.start_s is not None:
        ran = [each for each in ran if each[0] < job.start_s]
        ran.append((job.start_s, picture.now_s))
    found: list[Span] = []
    for since_s, until_s in ran:
        since = max(_tick(jobs, since_s), found[-1][1] if found else 0)
        found.append((min(since, now), min(max(since, _tick(jobs, until_s)), now)))
    return found


class _Barred:
    """The nodes on which a job may not run. Most jobs are alike in this."""

    def __init__(self, nodes: Sequence[QueuedNode]) -> None:
        self._nodes = nodes
        self._known: dict[tuple[tuple[str, ...], ...], frozenset[int]] = {}

    def of(self, job: QueuedJob) -> frozenset[int]:
        """Places of these nodes."""
        only = job.required if len(job.required) >= job.nodes else ()
        key = (job.partitions, job.excluded, only)
        if key not in self._known:
            own, excluded, required = set(job.partitions), set(job.excluded), set(only)
            self._known[key] = frozenset(
                at
                for at, node in enumerate(self._nodes)
                if node.name in excluded or own.isdisjoint(node.partitions) or (required and node.name not in required)
            )
        return self._known[key]
