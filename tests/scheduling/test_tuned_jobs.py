"""Tiresias and Optimus on tuned jobs: Pollux's published averages, queues, and what one GPU more is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.planning_policies import golden, mean_jct_s
from perdure.errors import ConfigError
from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, place_on_freest
from perdure.scheduling.optimus import Optimus
from perdure.scheduling.tiresias_policy import Tiresias
from perdure.throughput.learned import LearnedJob
from tests.conftest import require


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_the_published_average_to_its_last_digit(policy: str, data_dir: Path | None) -> None:
    data = require("data", data_dir, "no golden schedules here")
    assert mean_jct_s(data, policy) == golden(data, policy)


@dataclass
class Known:
    """Steps of `serial_s / gpus`, `left` of them."""

    serial_s: float
    left: float
    most: int = 8

    def step_s(self, gpu_type: int, gpus: int) -> float:
        return self.serial_s / gpus

    def steps_left(self) -> float:
        return self.left

    def most_gpus(self) -> int:
        return self.most


def view(*jobs: tuple[int, Known], nodes: int = 2, now_s: float = 0.0) -> ElasticView:
    nothing = LearnedJob(1, 1, [(1, 1)], np.ones(1), [])
    seen = {
        row: ElasticJob(0.0, gpus, 30.0, 8, 1, nothing, 1.0, np.ones(1), oracle=oracle)
        for row, (gpus, oracle) in enumerate(jobs)
    }
    return ElasticView((GpuType("t4", nodes, 4),), seen, now_s)


def test_optimus_gives_each_a_gpu_and_the_rest_to_who_gains_most() -> None:
    plan = Optimus().plan(view((1, Known(1.0, 100.0)), (1, Known(1.0, 1e6)), (1, Known(1.0, 1e6, most=2))))
    assert [plan[row].gpus for row in range(3)] == [1, 5, 2]


def test_optimus_keeps_the_nodes_of_jobs_whose_gpus_stay() -> None:
    state = view((1, Known(1.0, 100.0)), (1, Known(1.0, 200.0)))
    first = Optimus().plan(state)
    for row, share in first.items():
        state.jobs[row].share = share
    assert Optimus().plan(state) == first


def test_tiresias_sets_a_job_back_once_it_has_had_its_gpu_time() -> None:
    policy, state = Tiresias(limit_gpu_s=480.0), view((8, Known(1.0, 1.0)), (8, Known(1.0, 1.0)))
    ran = []
    for now_s in (60.0, 120.0, 180.0):
        state.now_s = now_s
        plan = policy.plan(state)
        for row, job in state.jobs.items():
            job.share = plan.get(row)
        ran.append(sorted(plan))
    assert ran == [[0], [1], [0]]


def test_tiresias_passes_over_a_job_that_does_not_fit() -> None:
    plan = Tiresias().plan(view((6, Known(1.0, 1.0)), (4, Known(1.0, 1.0)), (2, Known(1.0, 1.0))))
    assert sorted(plan) == [0, 2]
    assert plan[0].where == ((0, 4), (1, 2))


def test_gpus_come_from_the_freest_nodes() -> None:
    free = [1, 3, 3]
    assert place_on_freest(free, 4) == ((1, 3), (2, 1))
    assert free == [1, 0, 2]


@pytest.mark.parametrize("policy", [Tiresias, Optimus])
def test_two_types_are_refused(policy: Callable[[], Tiresias | Optimus]) -> None:
    state = ElasticView((GpuType("t4", 1, 4), GpuType("a100", 1, 4)), {})
    with pytest.raises(ConfigError, match="plans for one GPU type, not for t4, a100"):
        policy().plan(state)
