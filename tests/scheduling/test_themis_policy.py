"""Themis' arbiter and agents: what is given, to whom, for how long, and what bids say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator

from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Share
from perdure.scheduling.themis_agents import JobAgent
from perdure.scheduling.themis_policy import Arbiter, Themis
from perdure.throughput.learned import LearnedJob
from tests.scheduling.ideal_speed import IdealSpeed


@dataclass
class Told:
    """An agent that says what it was told to."""

    rho_now: float
    values: np.ndarray
    more: int
    loses: float = 1.0

    def rho(self, now_s: float, contending: float) -> float:
        return self.rho_now

    def bid(self, now_s: float, contending: float, offered: int) -> np.ndarray:
        return self.values[np.minimum(np.arange(offered + 1), len(self.values) - 1)]

    def usable(self, offered: int) -> int:
        return min(offered, self.more)

    def sensitivity(self) -> float:
        return self.loses

    def split(self, gpus: int) -> dict[int, int]:
        return {0: gpus}


@st.composite
def auctions(draw: st.DrawFn) -> tuple[dict[int, Told], int, float, Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    agents = {
        row: Told(
            float(rng.uniform(0.5, 9)),
            np.append(1e-9, np.cumsum(rng.random(8) + 1e-6)),  # without any GPU no app ever ends
            int(rng.integers(0, 9)),
            rng.random(),
        )
        for row in range(draw(st.integers(0, 7)))
    }
    return agents, draw(st.integers(0, 12)), draw(st.sampled_from([0.0, 0.5, 0.8, 0.99])), rng


@settings(deadline=None, max_examples=60)
@given(auctions())
def test_no_gpu_is_given_twice_and_none_is_left_that_somebody_wants(
    auction: tuple[dict[int, Told], int, float, Generator],
) -> None:
    agents, free, fairness, rng = auction
    given_ = Arbiter(fairness).give(agents, dict.fromkeys(agents, 1.0), free, 0.0, rng)
    wanted = {row: agent.more for row, agent in agents.items()}
    assert all(0 < gpus <= wanted[row] for row, gpus in given_.items())
    assert sum(given_.values()) == min(free, sum(wanted.values()))


@settings(deadline=None, max_examples=40)
@given(auctions())
def test_the_worst_off_gets_a_gpu(auction: tuple[dict[int, Told], int, float, Generator]) -> None:
    agents, free, fairness, rng = auction
    wanting = [row for row, agent in agents.items() if agent.more]
    given_ = Arbiter(fairness).give(agents, dict.fromkeys(agents, 1.0), free, 0.0, rng)
    if wanting and free >= len(wanting):
        assert max(wanting, key=lambda row: agents[row].rho_now) in given_


def test_only_the_worst_bid_and_what_they_leave_goes_to_who_loses_most_when_spread() -> None:
    linear = np.arange(9.0) + 1e-9
    agents = {0: Told(9.0, linear, 8), 1: Told(1.0, linear, 8, loses=1.0), 2: Told(2.0, linear, 1, loses=3.0)}
    given_ = Arbiter(0.8).give(agents, dict.fromkeys(agents, 1.0), 8, 0.0, np.random.default_rng(0))
    assert given_ == {0: 8}  # alone in the auction it costs nobody there anything
    agents[0].values = np.array([1e-9, 1.0, 1.0])
    given_ = Arbiter(0.8).give(agents, dict.fromkeys(agents, 1.0), 2, 0.0, np.random.default_rng(0))
    assert given_ == {0: 1, 2: 1}


def job(gpus: int = 4, left: float = 1.0, submit_s: float = 0.0) -> ElasticJob:
    nothing = LearnedJob(1, 1, [(1, 1)], np.ones(1), [])
    return ElasticJob(submit_s, gpus, 30.0, 8, 1, nothing, 1.0, np.array([1000.0]), left=left, oracle=IdealSpeed())


def test_a_bid_is_the_inverse_of_rho_up_to_what_the_job_can_use() -> None:
    agent = JobAgent(job(left=0.5), 0)
    # 600 s are over; on 4 GPUs 500 s are left, and alone among 4 it would have taken 4,000.
    bid = agent.bid(600.0, 4.0, 6)
    assert bid[4] == pytest.approx(4000.0 / 1100.0)
    assert bid[6] == bid[4]
    assert (np.diff(bid) >= 0).all()
    assert agent.rho(600.0, 4.0) == np.inf
    agent.job.share = Share(0, 1, 4)
    assert agent.rho(600.0, 4.0) == pytest.approx(1100.0 / 4000.0)


def rounds(jobs: dict[int, ElasticJob], count: int, came: list[Any] | tuple[()] = ()) -> list[dict[int, int]]:
    policy, view, plans = Themis(lease_s=180.0), ElasticView((GpuType("t4", 1, 4),), dict(jobs)), []
    for number in range(1, count + 1):
        view.now_s = 60.0 * number
        view.jobs = {**view.jobs, **{row: one for at, row, one in came if at == number}}
        plan = policy.plan(view)
        for row, one in view.jobs.items():
            one.share = plan.get(row)
        plans.append({row: share.gpus for row, share in plan.items()})
    return plans


def test_a_lease_is_kept_until_it_ends_and_then_the_newcomer_gets_its_part() -> None:
    plans = rounds({0: job()}, 5, [(2, 1, job(submit_s=100.0))])
    assert plans[0] == plans[1] == plans[2] == {0: 4}
    assert plans[3].get(1, 0) > 0


def test_a_gang_bids_nothing_for_less_than_itself_and_gets_no_part() -> None:
    agent = JobAgent(job(gpus=4), 0)
    agent.job.rigid = True
    bid = agent.bid(600.0, 4.0, 6)
    assert (bid[:4] == bid[0]).all()
    assert bid[4] == bid[6] > bid[0]
    assert [agent.usable(gpus) for gpus in (0, 3, 4, 6)] == [0, 0, 4, 4]
    gangs = {row: JobAgent(job(gpus=3, submit_s=row), 0) for row in range(3)}
    for each in gangs.values():
        each.job.rigid = True
    given_ = Arbiter().give(gangs, dict.fromkeys(gangs, 3.0), 8, 600.0, np.random.default_rng(0))
    assert sorted(given_.values()) == [3, 3], "8 GPUs are two gangs of 3, and the rest is of no use"


def test_asked_twice_it_plans_the_same() -> None:
    first, second = (rounds({row: job(2 + row, submit_s=row) for row in range(4)}, 12) for _ in range(2))
    assert first == second
    assert all(sum(plan.values()) <= 4 for plan in first)


def test_who_loses_most_by_many_gpus_chooses_first_of_what_is_left() -> None:
    class LossySpeed(IdealSpeed):
        """Four GPUs are only twice as fast as one."""

        def step_s(self, gpu_type: int, gpus: int) -> float:
            return float(gpus**-0.5)

    even, lossy = JobAgent(job(), 0), JobAgent(job(), 0)
    lossy.job.oracle = LossySpeed()
    assert (even.sensitivity(), lossy.sensitivity()) == pytest.approx((1.0, 2.0))


def test_of_apps_without_gpus_the_one_that_could_have_least_is_asked_first() -> None:
    agents = {0: Told(np.inf, np.array([1e-9, 5.0]), 1), 1: Told(np.inf, np.array([1e-9, 0.2]), 1)}
    given_ = Arbiter(0.8).give(agents, dict.fromkeys(agents, 1.0), 1, 0.0, np.random.default_rng(0))
    assert given_ == {1: 1}


def test_what_is_left_goes_by_chance_among_equals() -> None:
    agents = {row: Told(9.0 if row == 0 else 1.0, np.array([1e-9, 1.0]), 1) for row in range(5)}
    found = {
        tuple(sorted(Arbiter(0.8).give(agents, dict.fromkeys(agents, 1.0), 2, 0.0, np.random.default_rng(seed))))
        for seed in range(20)
    }
    assert all(rows[0] == 0 for rows in found)
    assert {rows[1] for rows in found} == {1, 2, 3, 4}


def test_the_apps_beside_one_are_their_mean_since_it_came() -> None:
    told = list[dict[int, float]]()

    class Listening(Arbiter):
        def give(self, agents: Any, contending: Any, free: int, now_s: float, rng: Generator) -> dict[int, int]:
            told.append(dict(contending))
            return super().give(agents, contending, free, now_s, rng)

    policy, jobs = Themis(arbiter=Listening()), {0: job()}
    for turn in range(3):
        policy.plan(ElasticView((GpuType("t4", 1, 4),), dict(jobs), 60.0 * turn))
        jobs[turn + 1] = job()
    assert told == [{0: 1.0}, {0: 1.5, 1: 2.0}, {0: 2.0, 1: 2.5, 2: 3.0}]


def test_the_worst_part_of_the_apps_is_rounded_up() -> None:
    # Half of three are two: each wins a GPU. One of them alone would have both.
    agents = {row: Told(rho, np.array([1e-9, 1.0, 1.5]), 2) for row, rho in enumerate((9.0, 5.0, 1.0))}
    given_ = Arbiter(0.5).give(agents, dict.fromkeys(agents, 1.0), 2, 0.0, np.random.default_rng(0))
    assert given_ == {0: 1, 1: 1}
