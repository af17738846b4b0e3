"""The plans of Themis and Sia for a queue: what they are asked, from what is known of its jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from perdure.live_policy.ended_jobs import OUTRUN, EndedJobs
from perdure.live_policy.queue_view import QueuePicture, came_s
from perdure.live_policy.settings import PolicySettings
from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Plan, Share
from perdure.scheduling.sia_policy import Sia
from perdure.scheduling.themis_policy import Themis
from perdure.simulation.fairness import mean_present
from perdure.throughput.learned import LearnedJob, learning
from perdure.waits.queue import QueuedJob, QueuedNode

SOLVER_S = 0.5  # for Sia's integer program; then the best plan so far is taken
_ROUNDS = 1000  # a mean over so many is not moved by the round that is planned


def planned_gpus(name: str, picture: QueuePicture, settings: PolicySettings, past: EndedJobs) -> Mapping[int, int]:
    """The GPUs of each of the picture's rows that is to have some, by themis or sia."""
    if not picture.jobs or not sum(picture.free):
        return {}
    plan = _auction(picture, settings, past) if name == "themis" else _chosen(picture, past)
    return {row: share.gpus for row, share in plan.items() if row >= 0}


def _chosen(picture: QueuePicture, past: EndedJobs) -> Plan:
    """What Sia chooses. What jobs outside the picture have is held by rows below 0."""
    types, place = _types(picture.nodes), {node.name: node.gpus for node in picture.nodes}
    at = {kind.gpus_per_node: row for row, kind in enumerate(types)}
    free = [0] * len(types)
    for node, gpus in zip(picture.nodes, picture.free, strict=True):
        free[at[node.gpus]] += gpus
    view = ElasticView(types, {}, picture.now_s)
    jobs = {row: _job(job, picture, past, len(types)) for row, job in enumerate(picture.jobs)}
    for row, job in enumerate(picture.jobs):
        if job.is_running:
            kind = at.get(place.get(job.running_on[0], 0), 0) if job.running_on else 0
            jobs[row].share = Share(kind, -(-job.gpus // types[kind].gpus_per_node), job.gpus)
    for kind, left in enumerate(free):  # others keep what they have
        held = types[kind].gpus - left
        jobs[-1 - kind] = _pinned(Share(kind, 1, held), len(types))
    view.jobs = jobs
    return Sia(limit_s=SOLVER_S).plan(view)


def _auction(picture: QueuePicture, settings: PolicySettings, past: EndedJobs) -> Plan:
    """All GPUs are alike, on one node: where they are is not asked."""
    jobs = {row: _job(job, picture, past, 1) for row, job in enumerate(picture.jobs)}
    for row, job in enumerate(picture.jobs):
        if job.is_running:
            jobs[row].share = Share(0, 1, job.gpus, ((0, job.gpus),))
    lives = [(job.submit_s, picture.now_s) for job in jobs.values()]
    since_s, until_s = np.array([*lives, *past.lives], float).T
    present = mean_present(since_s, until_s)[: len(lives)]
    policy = Themis(seed=floor(picture.now_s / settings.round_s), lease_s=settings.lease_s)
    policy.resume(_ROUNDS, dict(enumerate(present.tolist())))
    return policy.plan(ElasticView((GpuType("gpu", 1, sum(picture.free)),), jobs, picture.now_s))


def _job(job: QueuedJob, picture: QueuePicture, past: EndedJobs, types: int) -> ElasticJob:
    ran = list(picture.history.get(job.job_id, ()))
    ran_s = sum(until - since for since, until in ran)
    if job.is_running and job.start_s is not None:
        ran_s += max(0.0, picture.now_s - job.start_s)
    whole_s = past.expected_s(job.walltime_s, ran_s)
    sizes = job.sizes if job.is_waiting else ()
    most = max(sizes, default=job.gpus)
    learned = _learned(types, past.most_gpus.get(job.job_id, 0))
    return ElasticJob(
        submit_s=came_s(job, picture.history), asked_gpus=most, restart_s=0.0, most_gpus=most,
        largest_batch=1, learned=learned, work=1.0, alone_s=np.full(types, whole_s), rigid=not sizes,
        left=max(OUTRUN, 1.0 - ran_s / whole_s), restarts=len(ran), oracle=_EvenSpeed(most), name=job.job_id,
        sizes=sizes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _EvenSpeed:
    """Twice the GPUs are twice as fast: nobody has measured these jobs."""

    most: int

    def step_s(self, gpu_type: int, gpus: int) -> float:  # noqa: ARG002
        return 1.0 / gpus

    def steps_left(self) -> float:
        return 1.0

    def most_gpus(self) -> int:
        return self.most


def _types(nodes: Sequence[QueuedNode]) -> tuple[GpuType, ...]:
    """Nodes with the same number of GPUs are taken to be of one type."""
    sizes = sorted({node.gpus for node in nodes if node.is_usable and node.gpus})
    return tuple(
        GpuType(f"{size}", sum(node.is_usable and node.gpus == size for node in nodes), size) for size in sizes
    )


def _learned(types: int, most_gpus: int) -> LearnedJob:
    """A job of which nothing is known but the most GPUs that it has run on."""
    learned = learning("job", 1, 1, {str(kind): (1, 1) for kind in range(types)}, np.ones(types), {})
    if most_gpus:
        learned.speed[0].see((1, most_gpus, 1), 1.0 / most_gpus, 1.0 / most_gpus)
    return learned


def _pinned(share: Share, types: int) -> ElasticJob:
    return ElasticJob(
        0.0, share.gpus, 0.0, share.gpus, 1, _learned(types, 0), 1.0, np.ones(types), rigid=True, share=share,
        restarting=True,
    )  # fmt: skip
