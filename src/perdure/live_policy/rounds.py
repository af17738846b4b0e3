"""Policies that plan in rounds, above a resource manager: who is to have GPUs now, and how many.

The object of `scheduling/` plans with the GPUs that jobs outside the pass leave. Its plan is made from nothing at each
look: what it has to remember is in when jobs came and ran. Where the resource manager puts a job is its own choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor

import numpy as np

from perdure.live_policy.queue_view import QueuePicture, came_s
from perdure.live_policy.settings import PolicySettings
from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Plan, Share
from perdure.scheduling.protocol import RankingPolicy, StatelessPolicy
from perdure.scheduling.sia import Configurations
from perdure.scheduling.sia_policy import Sia
from perdure.scheduling.themis_policy import Themis
from perdure.scheduling.view import View
from perdure.simulation.fairness import mean_present
from perdure.throughput.learned import LearnedJob, learning
from perdure.waits.queue import QueuedJob, QueuedNode

SOLVER_S = 0.5  # for Sia's integer program; then the best plan so far is taken
OUTRUN = 0.05  # of a job that has run longer than all that were like it, so much is taken to be left


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """What is known of jobs that are over, and of attempts that are."""

    lives: Sequence[tuple[float, float]] = ()  # when each came and went
    shares: Sequence[float] = ()  # of their limits that they ran
    run_s: Sequence[float] = ()  # how long they ran
    most_gpus: Mapping[str, int] = field(default_factory=dict)  # that jobs of the queue have run on


@dataclass(frozen=True, slots=True)
class FixedOrder(StatelessPolicy):
    """Rows in an order that somebody else has made. Those who run and come last make room."""

    name: str
    rows: tuple[int, ...]
    preemptive: bool = True

    def order(self, view: View) -> Sequence[int]:  # noqa: ARG002
        return self.rows


@dataclass(frozen=True, slots=True)
class RoundPolicy:
    """Themis or Sia, by its name. A job of one size is a gang; one that runs is, whatever sizes it allows."""

    name: str
    settings: PolicySettings
    past: EndedJobs = field(default_factory=EndedJobs)
    preemptive: bool = True

    def on(self, picture: QueuePicture) -> tuple[RankingPolicy, Mapping[str, int]]:
        """The order of the picture's rows, and the GPUs of waiting jobs that have a choice and are planned."""
        plan = self._plan(picture)
        jobs = picture.jobs
        rows = range(len(jobs))
        kept = [row for row in rows if jobs[row].is_running and row in plan]
        begin = sorted((row for row in rows if jobs[row].is_waiting and row in plan), key=lambda row: -plan[row].gpus)
        others = sorted((row for row in rows if row not in plan), key=lambda row: jobs[row].is_waiting)
        sizes = {jobs[row].job_id: plan[row].gpus for row in begin if jobs[row].sizes}
        return FixedOrder(self.name, (*kept, *begin, *others)), sizes

    def unfit(self, job: QueuedJob, nodes: Sequence[QueuedNode]) -> str:
        """Why it cannot plan for a job of one size; "" mostly."""
        if self.name != "sia" or (job.sizes and job.is_waiting):
            return ""
        if any(gpus == job.gpus for kind in _types(nodes) for gpus in _configurations((kind,)).gpus.tolist()):
            return ""
        return f"it asks for {job.gpus} GPUs, and sia knows powers of two on a node, or whole nodes"

    def why_kept(self, job: QueuedJob, now_s: float) -> str:
        """Why a job that runs has its GPUs for longer; "" where they are on offer."""
        if self.name == "themis":
            left_s = self.lease_left_s(job, now_s)
            return f"its lease goes on for {left_s:.0f} s" if left_s > 0 else ""
        ran_s, round_s = now_s - (job.start_s if job.start_s is not None else now_s), self.settings.round_s
        return f"it has run {ran_s:.0f} s of a round of {round_s:.0f} s" if ran_s < round_s else ""

    def lease_left_s(self, job: QueuedJob, now_s: float) -> float:
        """How long a job that runs has its GPUs for sure; 0 where they are on offer in this round.

        A lease that ended in the round before is on offer until this one ends. It is another one where its job wins.
        """
        if job.start_s is None:
            return 0.0
        lease_s, round_s = self.settings.lease_s, self.settings.round_s
        begin_s = floor(now_s / round_s) * round_s
        ended = floor((begin_s - job.start_s) / lease_s)
        if ended >= 1 and job.start_s + ended * lease_s > begin_s - round_s:
            return 0.0
        return job.start_s + (floor((now_s - job.start_s) / lease_s) + 1) * lease_s - now_s

    def _plan(self, picture: QueuePicture) -> Plan:
        if not picture.jobs or not sum(picture.free):
            return {}
        if self.name == "themis":
            return self._auction(picture)
        types, place = _types(picture.nodes), {node.name: node.gpus for node in picture.nodes}
        at = {kind.gpus_per_node: row for row, kind in enumerate(types)}
        free = [0] * len(types)
        for node, gpus in zip(picture.nodes, picture.free, strict=True):
            free[at[node.gpus]] += gpus
        view = ElasticView(types, {}, picture.now_s)
        jobs = {row: self._job(job, picture, len(types)) for row, job in enumerate(picture.jobs)}
        for row, job in enumerate(picture.jobs):
            if job.is_running:
                kind = at.get(place.get(job.running_on[0], 0), 0) if job.running_on else 0
                jobs[row].share = Share(kind, -(-job.gpus // types[kind].gpus_per_node), job.gpus)
        for kind, left in enumerate(free):  # others keep what they have
            held = types[kind].gpus - left
            jobs[-1 - kind] = _pinned(Share(kind, 1, held), len(types))
        view.jobs = jobs
        found = Sia(limit_s=SOLVER_S).plan(view)
        return {row: share for row, share in found.items() if row >= 0}

    def _auction(self, picture: QueuePicture) -> Plan:
        """All GPUs are alike, on one node: where they are is not asked."""
        jobs = {row: self._job(job, picture, 1) for row, job in enumerate(picture.jobs)}
        for row, job in enumerate(picture.jobs):
            if job.is_running:
                jobs[row].share = Share(0, 1, job.gpus, ((0, job.gpus),))
        lives = [(job.submit_s, picture.now_s) for job in jobs.values()]
        since_s, until_s = np.array([*lives, *self.past.lives], float).T
        present = mean_present(since_s, until_s)[: len(lives)]
        policy = Themis(seed=floor(picture.now_s / self.settings.round_s), lease_s=self.settings.lease_s)
        policy.resume(_ROUNDS, dict(enumerate(present.tolist())))
        return policy.plan(ElasticView((GpuType("gpu", 1, sum(picture.free)),), jobs, picture.now_s))

    def _job(self, job: QueuedJob, picture: QueuePicture, types: int) -> ElasticJob:
        ran = list(picture.history.get(job.job_id, ()))
        ran_s = sum(until - since for since, until in ran)
        if job.is_running and job.start_s is not None:
            ran_s += max(0.0, picture.now_s - job.start_s)
        whole_s = self.expected_s(job.walltime_s, ran_s)
        sizes = job.sizes if job.is_waiting else ()
        most = max(sizes, default=job.gpus)
        learned = _learned(types, self.past.most_gpus.get(job.job_id, 0))
        return ElasticJob(
            submit_s=came_s(job, picture.history), asked_gpus=most, restart_s=0.0, most_gpus=most,
            largest_batch=1, learned=learned, work=1.0, alone_s=np.full(types, whole_s), rigid=not sizes,
            left=max(OUTRUN, 1.0 - ran_s / whole_s), restarts=len(ran), oracle=_EvenSpeed(most), name=job.job_id,
            sizes=sizes,
        )  # fmt: skip

    def expected_s(self, walltime_s: float | None, ran_s: float) -> float:
        """How long a job is expected to run in all, of which it has run `ran_s`: as past jobs that ran longer did."""
        past = np.array(self.past.run_s if walltime_s is None else self.past.shares) * (walltime_s or 1.0)
        longer = past[past > ran_s]
        if len(longer):
            return float(longer.mean())
        return max(walltime_s or 0.0, ran_s / (1.0 - OUTRUN), 1.0)


_ROUNDS = 1000  # a mean over so many is not moved by the round that is planned


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


def _configurations(types: Sequence[GpuType]) -> Configurations:
    return Configurations.of_cluster(
        np.array([kind.nodes for kind in types]), np.array([kind.gpus_per_node for kind in types])
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
