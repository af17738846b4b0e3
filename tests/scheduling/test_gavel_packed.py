"""Gavel's linear programs with pairs that share GPUs: hand cases, optimality, and what every allocation keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from perdure.errors import InputError
from perdure.scheduling import gavel, gavel_packed
from perdure.scheduling.gavel import Floats, GavelRound
from perdure.scheduling.gavel_packed import PackedRound


@st.composite
def rounds(draw: st.DrawFn) -> PackedRound:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs, types = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    scale = np.array([1.0, 2.0])[rng.integers(0, 2, jobs)]
    cluster = GavelRound.of(
        rng.uniform(0.1, 10.0, (jobs, types)),
        rng.integers(2, 6, types).astype(float),
        scale,
        rng.uniform(0.5, 3.0, jobs),
    )
    pairs = np.array([(a, b) for a in range(jobs) for b in range(a + 1, jobs) if scale[a] == scale[b]], np.int64)
    pairs = pairs.reshape(-1, 2)
    kept = rng.uniform(0.2, 1.0, (len(pairs), 2, types)) * (rng.random((len(pairs), 1, types)) > 0.2)
    return PackedRound(cluster, pairs, cluster.throughput[pairs] * kept)


def keeps_the_limits(packed: PackedRound, fractions: Floats) -> None:
    cluster, jobs = packed.cluster, len(packed.cluster.throughput)
    assert (fractions >= -1e-9).all()
    assert (packed.scale @ fractions <= cluster.workers * (1 + 1e-6)).all()
    time = fractions[:jobs].sum(axis=1)
    for unit, pair in enumerate(packed.pairs.tolist()):
        time[pair] += fractions[jobs + unit].sum()
    assert (time <= 1 + 1e-6).all()
    assert (fractions[jobs:][(packed.together == 0).any(axis=1)] <= 1e-9).all(), "none shares where it does not fit"


def smallest(packed: PackedRound, fractions: Floats) -> float:
    cluster = packed.cluster
    got = packed.throughput(fractions)
    return float((cluster.scale * got / (cluster.weight * gavel.equal_share(cluster))).min())


def best_by_hand(packed: PackedRound) -> float:
    """The same program, written down entry by entry."""
    cluster, (jobs, types) = packed.cluster, packed.cluster.throughput.shape
    units = [(job,) for job in range(jobs)] + [tuple(pair) for pair in packed.pairs.tolist()]
    factor = cluster.scale / (cluster.weight * gavel.equal_share(cluster))
    rows, bound = [], []
    for job in range(jobs):
        rows.append([float(job in unit) for unit in units for _ in range(types)] + [0.0])
        bound.append(1.0)
    for kind in range(types):
        rows.append([cluster.scale[unit[0]] * (place == kind) for unit in units for place in range(types)] + [0.0])
        bound.append(cluster.workers[kind])
    for job in range(jobs):
        rate = []
        for place, unit in enumerate(units):
            for kind in range(types):
                if job not in unit:
                    rate.append(0.0)
                elif len(unit) == 1:
                    rate.append(-factor[job] * cluster.throughput[job, kind])
                else:
                    both = packed.together[place - jobs, :, kind]
                    rate.append(-factor[job] * both[unit.index(job)] * bool((both > 0).all()))
        rows.append([*rate, 1.0])
        bound.append(0.0)
    found = linprog([*[0.0] * (len(units) * types), -1.0], A_ub=np.array(rows), b_ub=bound, method="highs")
    return float(found.x[-1])


@settings(deadline=None, max_examples=25)
@given(rounds())
def test_max_min_is_the_optimum_of_the_program_and_keeps_the_limits(packed: PackedRound) -> None:
    found = gavel_packed.least_attained(packed)
    keeps_the_limits(packed, found.fractions)
    assert smallest(packed, found.fractions) == pytest.approx(found.value, rel=1e-6)
    assert found.value == pytest.approx(best_by_hand(packed), rel=1e-6)


@settings(deadline=None, max_examples=25)
@given(rounds())
def test_leaving_out_pairs_that_turns_are_as_good_as_loses_nothing(packed: PackedRound) -> None:
    alone, kept = gavel.least_attained(packed.cluster).value, packed.worthwhile()
    value = gavel_packed.least_attained(packed).value
    assert value >= alone * (1 - 1e-7)
    assert gavel_packed.least_attained(kept).value == pytest.approx(value, rel=1e-6)
    assert len(kept.pairs) <= len(packed.pairs)


@settings(deadline=None, max_examples=15)
@given(rounds(), st.integers(0, 2**16))
def test_other_objectives_are_never_worse_than_without_pairs(packed: PackedRound, seed: int) -> None:
    rng, cluster = np.random.default_rng(seed), packed.cluster
    jobs = len(cluster.throughput)
    left, spent_s, alone_s = rng.uniform(1, 100, jobs), rng.uniform(0, 50, jobs), rng.uniform(10, 500, jobs)
    found = gavel_packed.makespan(packed, left)
    keeps_the_limits(packed, found.fractions)
    assert found.value >= gavel.makespan(cluster, left).value * (1 - 1e-7)
    fair = gavel_packed.finish_time_fairness(packed, spent_s, left, alone_s)
    keeps_the_limits(packed, fair.fractions)
    assert fair.value <= gavel.finish_time_fairness(cluster, spent_s, left, alone_s).value * (1 + 1e-5)
    rho = (spent_s + left / packed.throughput(fair.fractions)) / alone_s
    assert rho.max() <= fair.value * (1 + 1e-4)
    order = rng.permutation(jobs)
    first = gavel_packed.first_come(packed, order)
    keeps_the_limits(packed, first.fractions)
    assert first.value >= gavel.first_come(cluster, order).value * (1 - 1e-7)


def two(kept: float) -> PackedRound:
    cluster = GavelRound.of(np.array([[4.0], [2.0]]), np.array([1.0]))
    return PackedRound(cluster, np.array([[0, 1]]), np.array([[[4.0 * kept], [2.0 * kept]]]))


@pytest.mark.parametrize(("kept", "value"), [(0.9, 0.9), (0.5, 0.5), (0.3, 0.5)])
def test_two_on_one_gpu_share_it_where_that_is_better_than_turns(kept: float, value: float) -> None:
    assert gavel_packed.least_attained(two(kept)).value == pytest.approx(value)
    assert len(two(kept).worthwhile().pairs) == (kept > 0.5)


@pytest.mark.parametrize(
    ("pairs", "together", "said"),
    [
        ([[0, 0]], [[[1.0], [1.0]]], "jobs 0 and 0 are not two of 2"),
        ([[0, 5]], [[[1.0], [1.0]]], "jobs 0 and 5 are not two of 2"),
        ([[0, 1]], [[[np.nan], [1.0]]], "its throughput on GPU type 0 is not valid"),
        ([[0, 1]], [[[1.0], [-1.0]]], "its throughput on GPU type 0 is not valid"),
    ],
)
def test_pairs_that_are_none_are_refused(pairs: list[list[int]], together: list[list[list[float]]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        PackedRound(two(1.0).cluster, np.array(pairs), np.array(together))


def test_jobs_of_different_sizes_are_no_pair() -> None:
    cluster = GavelRound.of(np.ones((2, 1)), np.array([4.0]), np.array([1.0, 2.0]))
    with pytest.raises(InputError, match="take different numbers of GPUs"):
        PackedRound(cluster, np.array([[0, 1]]), np.ones((1, 2, 1)))
