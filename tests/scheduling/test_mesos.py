"""Mesos: who is offered what, who waits for locality, and that nobody is preempted."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Plan, Share
from perdure.scheduling.mesos import Mesos, ResourceOffer
from perdure.throughput.learned import LearnedJob


def job(gpus: int, submit_s: float = 0.0, kind: str = "net", runs: tuple[float, ...] = (1.0,)) -> ElasticJob:
    nothing = LearnedJob(1, 1, [(1, 1)], np.ones(1), [])
    return ElasticJob(submit_s, gpus, 30.0, 8, 1, nothing, 1.0, np.array(runs), application=kind)


def view(jobs: dict[int, ElasticJob], *types: GpuType) -> ElasticView:
    return ElasticView(types or (GpuType("t4", 2, 4),), jobs, 60.0, range(max(1, len(types))))


def rounds(policy: Mesos, state: ElasticView, count: int) -> list[Plan]:
    """Plans of rounds in which no job ends."""
    plans = []
    for _ in range(count):
        plans.append(policy.plan(state))
        for row, each in state.jobs.items():
            each.share = plans[-1].get(row)
        state.now_s += policy.round_s
    return plans


def test_the_framework_that_has_fewest_is_offered_first_and_gives_it_to_its_oldest_job() -> None:
    jobs = {0: job(4, 0.0, "a"), 1: job(4, 1.0, "a"), 2: job(4, 2.0, "b")}
    assert sorted(Mesos().plan(view(jobs))) == [0, 2]


def test_a_younger_job_that_fits_passes_one_that_does_not() -> None:
    assert sorted(Mesos().plan(view({0: job(9), 1: job(4, 1.0)}))) == [1]


def test_a_job_declines_scattered_gpus_for_a_while_and_then_takes_them() -> None:
    jobs = {0: job(3), 1: job(3, 1.0), 2: job(2, 2.0)}
    plans = rounds(Mesos(local_s=300.0), view(jobs), 7)
    assert [2 in plan for plan in plans] == [False] * 5 + [True] * 2
    assert sorted(plans[-1][2].where) == [(0, 1), (1, 1)]


def test_waiting_counts_only_while_there_are_enough() -> None:
    jobs = {0: job(4), 1: job(4, 1.0), 2: job(2, 2.0)}
    policy, state = Mesos(local_s=120.0), view(jobs)
    rounds(policy, state, 5)
    state.jobs = {1: jobs[1], 2: jobs[2], 3: job(3, 0.5)}
    jobs[1].share = Share(0, 2, 4, ((0, 3), (1, 1)))
    state.jobs[3].share = Share(0, 1, 2, ((1, 2),))
    plans = rounds(policy, state, 3)  # one GPU on each node is left
    assert [2 in plan for plan in plans] == [False, False, True]


def test_nobody_is_preempted() -> None:
    policy, state = Mesos(), view({0: job(8)})
    first = rounds(policy, state, 1)[0]
    state.jobs = {**state.jobs, 1: job(1, 5.0, "other")}
    assert rounds(policy, state, 3)[-1] == first


@pytest.mark.parametrize(("gpus", "where"), [(1, ((1, 1),)), (4, ((0, 4),)), (6, ((0, 4), (2, 2))), (9, None)])
def test_a_local_offer_fills_what_is_fullest(gpus: int, where: tuple[tuple[int, int], ...] | None) -> None:
    offer = ResourceOffer([GpuType("t4", 3, 4)], [[4, 1, 3]])
    found = offer.local(gpus, 0)
    assert (None if found is None else found.where) == where


def test_a_job_goes_to_a_type_on_which_it_runs() -> None:
    types = GpuType("fast", 1, 4), GpuType("slow", 1, 4)
    plan = Mesos().plan(view({0: job(4, runs=(np.inf, 1.0)), 1: job(4, 1.0, runs=(1.0, 1.0))}, *types))
    assert (plan[0].gpu_type, plan[1].gpu_type) == (1, 0)
