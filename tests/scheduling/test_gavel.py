"""Gavel's linear programs: a hand case, optimality by duality, and what every allocation keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from perdure.scheduling.gavel import (
    GavelRound,
    equal_share,
    finish_time_fairness,
    first_come,
    least_attained,
    least_attained_middle,
    makespan,
    total_throughput,
    water_filling,
)


@st.composite
def clusters(draw: st.DrawFn) -> GavelRound:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs, types = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    return GavelRound.of(
        rng.uniform(0.1, 10.0, (jobs, types)),
        rng.integers(1, 9, types).astype(float),
        (2.0 ** rng.integers(0, 4, jobs)).astype(float),
        rng.uniform(0.5, 3.0, jobs),
    )


def keeps_the_limits(cluster: GavelRound, fractions: NDArray[np.float64]) -> None:
    assert (fractions >= -1e-9).all()
    assert (fractions.sum(axis=1) <= 1 + 1e-6).all()
    assert (cluster.scale @ fractions <= cluster.workers * (1 + 1e-6)).all()


def normalised(cluster: GavelRound, fractions: NDArray[np.float64]) -> Any:
    got = (cluster.throughput * fractions).sum(axis=1)
    return cluster.scale * got / (cluster.weight * equal_share(cluster))


def test_max_min_by_hand(hand_cases: dict[str, Any]) -> None:
    case = hand_cases["gavel-las-lp"]
    cluster = GavelRound.of(np.array(case["input"]["throughputs"], float), np.array(case["input"]["workers"], float))
    assert equal_share(cluster).tolist() == case["expected"]["norm"]
    assert least_attained(cluster).value == pytest.approx(case["expected"]["opt_min_normalised"], abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(clusters())
def test_max_min_is_optimal_by_duality(cluster: GavelRound) -> None:
    """The dual, solved on its own: prices of GPU types and of jobs' time that no allocation can beat."""
    found = least_attained(cluster)
    for each, off in ((found, 1e-6), (least_attained_middle(cluster), 1e-4)):
        keeps_the_limits(cluster, each.fractions)
        assert normalised(cluster, each.fractions).min() == pytest.approx(found.value, rel=off)
    jobs, types = cluster.throughput.shape
    worth = cluster.throughput * (cluster.scale / (cluster.weight * equal_share(cluster)))[:, None]
    rows, cost = [], np.concatenate([cluster.workers, np.ones(jobs), np.zeros(jobs)])
    for job in range(jobs):
        for kind in range(types):
            row = np.zeros(types + 2 * jobs)
            row[kind], row[types + job], row[types + jobs + job] = -cluster.scale[job], -1.0, worth[job, kind]
            rows.append(row)
    equal = np.concatenate([np.zeros(types + jobs), np.ones(jobs)])[None]
    dual = linprog(cost, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=equal, b_eq=[1.0])
    assert dual.fun == pytest.approx(found.value, rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(clusters())
def test_water_filling_keeps_the_smallest_and_leaves_nobody_who_could_rise(cluster: GavelRound) -> None:
    found = water_filling(cluster)
    keeps_the_limits(cluster, found.fractions)
    assert found.value == pytest.approx(least_attained(cluster).value, rel=1e-5)
    level = normalised(cluster, found.fractions)
    factor = cluster.scale / (cluster.weight * equal_share(cluster))
    jobs, types = cluster.throughput.shape
    limits = np.vstack([np.kron(np.eye(jobs), np.ones(types)), np.kron(cluster.scale[None], np.eye(types))])
    throughput = np.kron(np.eye(jobs), np.ones(types)) * (cluster.throughput * factor[:, None]).ravel()
    for job in range(jobs):  # raise one while no other falls below it, or below where it is
        others = np.arange(jobs) != job
        kept = np.minimum(level, level[job])[others]
        answer = linprog(
            -throughput[job],
            A_ub=np.vstack([limits, -throughput[others]]),
            b_ub=np.concatenate([np.ones(jobs), cluster.workers, -kept * (1 - 1e-7)]),
        )
        assert -answer.fun <= level[job] * (1 + 5e-3)  # tolerances of a chain of programs add up


@settings(deadline=None, max_examples=15)
@given(clusters())
def test_finish_time_fairness_is_the_rho_that_is_said(cluster: GavelRound) -> None:
    rng = np.random.default_rng(len(cluster.throughput))
    spent, left = rng.uniform(0, 100, len(cluster.throughput)), rng.uniform(10, 1000, len(cluster.throughput))
    alone = spent + left / equal_share(cluster)
    found = finish_time_fairness(cluster, spent, left, alone)
    keeps_the_limits(cluster, found.fractions)
    rho = (spent + left / (cluster.throughput * found.fractions).sum(axis=1)) / alone
    assert rho.max() <= found.value * (1 + 1e-5)
    lower = _slower(cluster, left, alone, spent, found.value * (1 - 1e-3))
    assert lower < 1.0 + 1e-6


def _slower(
    cluster: GavelRound, left: NDArray[np.float64], alone: NDArray[np.float64], spent: NDArray[np.float64], rho: float
) -> float:
    """The part of the throughput needed for this rho that can be had by all."""
    room = rho * alone - spent
    if (room <= 0).any():
        return 0.0
    return makespan(cluster, left / room).value


def test_on_equal_gpus_one_type_is_as_good_as_another() -> None:
    rng = np.random.default_rng(0)
    cluster = GavelRound.of(rng.uniform(1, 5, (4, 2)), np.array([2.0, 2.0]))
    assert least_attained(cluster.blind()).value == pytest.approx(1.0)


def test_total_throughput_gives_each_type_to_who_gains_most() -> None:
    found = total_throughput(GavelRound.of(np.array([[4.0, 1.0], [1.0, 1.0]]), np.array([1.0, 1.0])), np.ones(2))
    assert found.fractions.round(6).tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("seed", range(20))
def test_throughput_for_the_money_is_what_the_dual_program_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs, types = int(rng.integers(1, 8)), int(rng.integers(1, 4))
    throughput = rng.uniform(0.1, 50, (jobs, types)) * (rng.random((jobs, types)) < 0.8)
    throughput[:, 0] += 0.1
    workers, scale = rng.integers(1, 6, types).astype(float), rng.integers(1, 5, jobs).astype(float)
    price = rng.uniform(0.3, 3, types)
    found = total_throughput(GavelRound.of(throughput, workers, scale), price)
    assert (found.fractions.sum(axis=1) <= 1 + 1e-9).all()
    assert (scale @ found.fractions <= workers + 1e-9).all()
    assert (found.fractions * throughput / price).sum() == pytest.approx(found.value)
    # What a job's time and a type's GPUs must at least be worth, so that no fraction is worth more than it takes.
    needs = np.zeros((jobs * types, jobs + types))
    for at in range(jobs * types):
        job, kind = divmod(at, types)
        needs[at, job], needs[at, jobs + kind] = 1.0, scale[job]
    dual = linprog(np.concatenate([np.ones(jobs), workers]), A_ub=-needs, b_ub=-(throughput / price).ravel())
    assert found.value == pytest.approx(dual.fun, rel=1e-7)


def test_on_one_type_the_money_goes_to_most_steps_for_a_gpu() -> None:
    cluster = GavelRound.of(np.array([[6.0], [4.0], [10.0]]), np.array([3.0]), np.array([1.0, 1.0, 2.0]))
    found = total_throughput(cluster, np.array([2.0]))
    assert found.fractions.round(6).ravel().tolist() == [1.0, 0.0, 1.0]
    assert found.value == pytest.approx(8.0)


def test_a_type_that_costs_more_than_it_is_faster_stays_idle_until_the_other_is_full() -> None:
    cluster = GavelRound.of(np.array([[4.0, 3.0], [4.0, 3.0]]), np.array([1.0, 1.0]))
    for price, first in (((2.48, 1.46), 1), ((1.3, 1.0), 0)):
        found = total_throughput(GavelRound.of(cluster.throughput[:1], cluster.workers), np.array(price))
        assert found.fractions[0, first] == pytest.approx(1.0)
    assert total_throughput(cluster, np.array([2.48, 1.46])).fractions.sum() == pytest.approx(2.0)


def test_first_come_serves_the_oldest_where_only_one_can_run() -> None:
    found = first_come(GavelRound.of(np.ones((3, 1)), np.array([1.0])), np.array([2, 0, 1]))
    assert found.fractions.round(6).ravel().tolist() == [0.0, 1.0, 0.0]


def test_makespan_of_two_jobs_on_one_gpu_is_the_sum() -> None:
    found = makespan(GavelRound.of(np.ones((2, 1)), np.array([1.0])), np.array([100.0, 300.0]))
    assert 1 / found.value == pytest.approx(400.0)
