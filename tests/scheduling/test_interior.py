"""The interior point method: the simplex method's optimum, the middle of what is equally good, and what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import typing
from numpy.typing import NDArray
from scipy.optimize import linprog

from perdure.scheduling.interior import raise_lowest, reach


@st.composite
def programs(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[Any]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs, types = draw(st.integers(1, 20)), draw(st.integers(1, 4))
    gain = np.exp(draw(st.sampled_from([0.1, 1.0, 3.0])) * rng.normal(size=(jobs, types)))
    gain *= rng.random(gain.shape) < draw(st.sampled_from([0.6, 1.0]))
    gain[np.arange(jobs), rng.integers(0, types, jobs)] += 0.1
    return gain, (2.0 ** rng.integers(0, 4, jobs)).astype(float), rng.integers(1, 20, types).astype(float)


def simplex(gain: typing.NDArray[Any], scale: typing.NDArray[np.float64], workers: typing.NDArray[Any]) -> Any:
    jobs, types = gain.shape
    limits = np.vstack([np.kron(np.eye(jobs), np.ones(types)), np.kron(scale[None], np.eye(types))])
    above = np.hstack([-np.kron(np.eye(jobs), np.ones(types)) * gain.ravel(), np.ones((jobs, 1))])
    found = linprog(
        np.append(np.zeros(jobs * types), -1.0),
        A_ub=np.vstack([np.hstack([limits, np.zeros((jobs + types, 1))]), above]),
        b_ub=np.concatenate([np.ones(jobs), workers, np.zeros(jobs)]),
    )
    return -found.fun


@settings(deadline=None, max_examples=40)
@given(programs())
def test_the_lowest_is_as_high_as_the_simplex_method_gets_it(
    program: tuple[typing.NDArray[Any], typing.NDArray[np.float64], typing.NDArray[Any]],
) -> None:
    gain, scale, workers = program
    found = raise_lowest(gain, scale, workers)
    assert found.level == pytest.approx(simplex(gain, scale, workers), rel=1e-5)
    assert (gain * found.x).sum(axis=1).min() == pytest.approx(found.level, rel=1e-4)
    assert (found.x.sum(axis=1) <= 1 + 1e-5).all()
    assert (scale @ found.x <= workers * (1 + 1e-5)).all()


@settings(deadline=None, max_examples=20)
@given(programs(), st.integers(0, 2**32 - 1))
def test_the_order_of_jobs_does_not_matter(
    program: tuple[typing.NDArray[Any], typing.NDArray[np.float64], typing.NDArray[Any]], seed: int
) -> None:
    gain, scale, workers = program
    order = np.random.default_rng(seed).permutation(len(gain))
    first, second = raise_lowest(gain, scale, workers), raise_lowest(gain[order], scale[order], workers)
    assert second.level == pytest.approx(first.level, rel=1e-6)
    assert second.x == pytest.approx(first.x[order], abs=1e-2)


@settings(deadline=None, max_examples=30)
@given(programs(), st.floats(0.05, 0.95))
def test_what_is_below_the_best_level_can_be_reached_and_what_is_above_cannot(
    program: tuple[typing.NDArray[Any], typing.NDArray[np.float64], typing.NDArray[Any]], part: float
) -> None:
    gain, scale, workers = program
    level = simplex(gain, scale, workers)
    found = reach(gain / level, np.full(len(gain), part), scale, workers)
    assert found is not None
    assert ((gain / level * found).sum(axis=1) >= part * (1 - 1e-5)).all()
    assert reach(gain / level, np.full(len(gain), 1.0 + part), scale, workers) is None


def test_of_equally_good_types_a_job_gets_the_same_of_each() -> None:
    found = raise_lowest(np.ones((20, 3)), np.ones(20), np.full(3, 12.0))
    assert found.x == pytest.approx(1 / 3)


def test_thousands_of_jobs_use_all_gpus_but_a_thousandth() -> None:
    rng = np.random.default_rng(0)
    gain, workers = rng.uniform(5.0, 10.0, (3000, 3)), np.full(3, 500.0)  # half of them keep each job below 5
    found = raise_lowest(gain, np.ones(3000), workers)
    assert found.x.sum(axis=0) == pytest.approx(workers, rel=1e-3)
    assert (gain * found.x).sum(axis=1) == pytest.approx(found.level, rel=1e-3)
