"""A look at a queue made into rows: what a policy remembers of jobs is rebuilt from when they ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perdure.live_policy.queue_view import order_of, pass_over, picture_of
from perdure.model.cluster import Cluster
from perdure.model.jobs import JobState
from perdure.model.table import JobTable
from perdure.scheduling.las import Gittins2D, LeastAttained
from perdure.scheduling.placement.as_asked import AsAsked
from perdure.scheduling.placement.registry import room_of
from perdure.scheduling.protocol import RankingPolicy
from perdure.simulation.allocation import Passes
from perdure.simulation.plain import PlainLoop
from perdure.simulation.workload import Workload
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition
from tests.live_policy.queues import look, running, waiting

LIMITS = (60.0, 200.0)
POLICIES = (
    LeastAttained(queue_limits=LIMITS),
    LeastAttained(counts_gpus=False, queue_limits=LIMITS),
    LeastAttained(queue_limits=LIMITS, promote_knob=2.0),
    Gittins2D(queue_limits=LIMITS, samples=(20.0, 50.0, 90.0, 300.0, 700.0), quantum=60.0),
)


def simulated(policy: RankingPolicy, seed: int, until: int) -> tuple[PlainLoop, JobTable]:
    """Twenty jobs on two nodes, simulated up to an instant."""
    rng = np.random.default_rng(seed)
    n = 20
    table = JobTable(
        job_id=np.array([str(at) for at in range(1, n + 1)]),
        submit_s=np.sort(rng.integers(0, 300, n)).astype(float),
        gpus=rng.choice([1, 2, 4], n),
        duration_s=rng.integers(10, 250, n).astype(float),
        nodes=np.ones(n, np.int64),
    )
    placement = AsAsked((1,) * n)
    loop = PlainLoop.of(Workload.of(table), room_of(Cluster(np.array([4, 4])), placement, 1), policy, None)
    while (now := loop.next_instant()) is not None and now <= until:
        loop.happen(now)
    return loop, table


def as_queue(loop: PlainLoop, table: JobTable) -> tuple[Queue, list[QueuedJob], dict[str, list[tuple[float, float]]]]:
    """What a look would show of the simulation now, and the spans that ended before."""
    view, world = loop.world.view, loop.world
    spans: dict[str, list[tuple[float, float]]] = {}
    for row, _, since, until, _ in world.trail.spans:
        spans.setdefault(str(table.job_id[row]), []).append((float(since), float(until)))
    rows = []
    for row in (*view.running, *view.waiting):
        told: dict[str, Any] = {"submit_s": float(table.submit_s[row]), "gpus": int(table.gpus[row])}
        job_id = str(table.job_id[row])
        if row in view.running:
            on = tuple(f"n{node + 1}" for node, _ in world.room.held[row])
            rows.append(
                QueuedJob(
                    job_id, "u", JobState.RUNNING, ("main",), start_s=float(view.running[row]), running_on=on, **told
                )
            )
        else:
            rows.append(QueuedJob(job_id, "u", JobState.PENDING, ("main",), priority=1, **told))
    nodes = tuple(QueuedNode(f"n{at}", ("main",), gpus=4) for at in (1, 2))
    queue = Queue(float(view.now) + loop.world.jobs.origin_s, tuple(rows), nodes, (QueuedPartition("main"),))
    return queue, rows, spans


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("seed", range(12))
def test_the_order_from_a_look_is_that_of_the_simulation(policy: RankingPolicy, seed: int) -> None:
    loop, table = simulated(policy, seed, until=150 + 17 * seed)
    queue, rows, spans = as_queue(loop, table)
    origin_s = loop.world.jobs.origin_s
    moved = {job_id: [(a + origin_s, b + origin_s) for a, b in ran] for job_id, ran in spans.items()}
    rows = [_moved(job, origin_s) for job in rows]
    giver = loop.giver
    assert isinstance(giver, Passes)
    wanted = [str(table.job_id[row]) for row in giver.ranking.order()]
    picture = picture_of(queue, rows, moved)
    assert [picture.jobs[row].job_id for row in order_of(picture, policy)] == wanted
    found = pass_over(picture, policy)
    assert not found.starts  # the simulation has just given out what it could
    assert not found.yields


def _moved(job: QueuedJob, by_s: float) -> QueuedJob:
    from msgspec.structs import replace

    return replace(job, start_s=job.start_s + by_s) if job.start_s is not None else job


def test_others_keep_what_they_have() -> None:
    other = running("1", 100, ("n1",))
    queue = look(other, waiting("2", 5, gpus=4), waiting("3", 4, gpus=4)).queue
    picture = picture_of(queue, queue.jobs[1:], {})
    assert picture.free == (0, 4)
    assert [picture.jobs[row].job_id for row in pass_over(picture, LeastAttained()).starts] == ["2"]


def test_a_job_starts_only_on_nodes_that_it_may_have() -> None:
    only_elsewhere = waiting("2", 5, gpus=1, excluded=("n1", "n2"))
    queue = look(only_elsewhere, waiting("3", 4)).queue
    picture = picture_of(queue, queue.jobs, {})
    assert [picture.jobs[row].job_id for row in pass_over(picture, LeastAttained()).starts] == ["3"]
