"""Themis's auction: hand cases, the optimum by counting out, and what makes honest bids best."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import typing
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.scheduling.themis import finish_time_ratio, partial_allocation


def test_two_equal_apps_by_hand(hand_cases: dict[str, Any]) -> None:
    case = hand_cases["themis-partial-allocation"]
    award = partial_allocation(np.array(case["input"]["valuation_1_over_rho_by_gpus"], float))
    rows = zip(award.fair.tolist(), award.keeps.tolist(), award.gpus.tolist(), strict=True)
    assert [{"pf": fair, "c": keeps, "floor_alloc": gpus} for fair, keeps, gpus in rows] == [
        {**one, "c": pytest.approx(one["c"])} for one in case["expected"]
    ]


def test_rho_by_hand(hand_cases: dict[str, Any]) -> None:
    case = hand_cases["themis-rho"]["input"]
    ideal = case["t_ideal_alone"] * case["n_apps"]
    told = (case["t_shared_so_far"], case["work_left_serial_gpu_s"], case["gpus_now"], case["slowdown_S"], ideal)
    rho = finish_time_ratio(*(np.array(value, float) for value in told))
    assert float(rho) == pytest.approx(hand_cases["themis-rho"]["expected"]["rho"])


@pytest.mark.parametrize("apps", [2, 3, 4, 8])
def test_equal_linear_apps_keep_what_the_closed_form_says(apps: int) -> None:
    """((n-1)/n)^(n-1), for a number of GPUs that n and n - 1 divide."""
    gpus = apps * (apps - 1)
    award = partial_allocation(np.tile(np.maximum(np.arange(gpus + 1.0), 1e-9), (apps, 1)))
    assert award.keeps == pytest.approx(((apps - 1) / apps) ** (apps - 1))
    assert (award.fair == gpus // apps).all()


def test_an_app_without_gpus_has_rho_without_end() -> None:
    one = np.ones(1)
    assert np.isinf(finish_time_ratio(one, one, np.zeros(1), one, one)).all()


@st.composite
def auctions(draw: st.DrawFn) -> NDArray[Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    apps, gpus = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    return np.cumsum(rng.uniform(0.0, 1.0, (apps, gpus + 1)) ** draw(st.integers(1, 4)) + 1e-6, axis=1)


def best_product(bids: typing.NDArray[Any]) -> Any:
    """By counting out."""
    apps, most = bids.shape[0], bids.shape[1] - 1
    every = (split for split in itertools.product(range(most + 1), repeat=apps) if sum(split) <= most)
    return max(np.prod([bids[app, gpus] for app, gpus in enumerate(split)]) for split in every)


@settings(deadline=None, max_examples=50)
@given(auctions())
def test_the_fair_split_has_the_best_product_and_each_pays_what_it_costs_the_others(bids: typing.NDArray[Any]) -> None:
    award, apps = partial_allocation(bids), len(bids)
    assert award.fair.sum() <= bids.shape[1] - 1
    own = bids[np.arange(apps), award.fair]
    assert np.prod(own) == pytest.approx(best_product(bids))
    assert ((award.keeps > 0) & (award.keeps <= 1)).all()
    for app in range(apps):
        without = np.delete(bids, app, axis=0)
        alone = best_product(without) if apps > 1 else 1.0
        assert award.keeps[app] == pytest.approx(np.prod(np.delete(own, app)) / alone)


@settings(deadline=None, max_examples=50)
@given(auctions())
def test_no_other_split_serves_somebody_better_and_nobody_worse(bids: typing.NDArray[Any]) -> None:
    """Pareto efficiency, by counting out."""
    apps, most = len(bids), bids.shape[1] - 1
    own = bids[np.arange(apps), partial_allocation(bids).fair]
    for split in itertools.product(range(most + 1), repeat=apps):
        if sum(split) <= most:
            other = bids[np.arange(apps), list(split)]
            assert not ((other >= own * (1 + 1e-9)).all() and (other > own * (1 + 1e-6)).any())


@settings(deadline=None, max_examples=100)
@given(auctions())
def test_with_falling_returns_each_gets_its_part_but_for_one_gpu(bids: typing.NDArray[Any]) -> None:
    """Sharing incentive: the fair split and one GPU more are worth 1 / n of all GPUs or more (Caragiannis et al.,
    "The unreasonable fairness of maximum Nash welfare", EC 2016: envy-free up to one good).
    """
    concave = np.cumsum(-np.sort(-np.diff(bids, prepend=0.0, axis=1), axis=1), axis=1)
    apps, most = len(bids), bids.shape[1] - 1
    fair = partial_allocation(concave).fair
    one_more = np.minimum(fair + 1, most)
    assert (concave[np.arange(apps), one_more] >= concave[:, most] / apps * (1 - 1e-9)).all()


@settings(deadline=None, max_examples=50)
@given(auctions(), st.floats(0.1, 10.0))
def test_to_say_all_is_worth_more_changes_nothing(bids: typing.NDArray[Any], factor: float) -> None:
    """Only how values compare within one bid counts."""
    louder = bids.copy()
    louder[0] *= factor
    said, honest = partial_allocation(louder), partial_allocation(bids)
    kept = [bids[0, award.fair[0]] * award.keeps[0] for award in (said, honest)]
    assert kept[0] == pytest.approx(kept[1])


@settings(deadline=None, max_examples=50)
@given(auctions(), st.integers(0, 2**32 - 1))
def test_no_lie_keeps_more_than_the_truth(bids: typing.NDArray[Any], seed: int) -> None:
    """With what is kept counted as a fraction of the true value, which is exact for homogeneous values."""
    lie = bids.copy()
    lie[0] = np.cumsum(np.random.default_rng(seed).uniform(0.0, 1.0, bids.shape[1]) + 1e-6)
    honest, lying = partial_allocation(bids), partial_allocation(lie)
    truth = bids[0, honest.fair[0]] * honest.keeps[0]
    assert bids[0, lying.fair[0]] * lying.keeps[0] <= truth * (1 + 1e-9)


@pytest.mark.parametrize("bid", [[1.0, 0.5, 2.0], [0.0, np.nan, 1.0], [-1.0, 0.0, 1.0]])
def test_a_bid_that_falls_or_is_no_number_is_named(bid: list[float]) -> None:
    with pytest.raises(InputError, match="bid of app 1"):
        partial_allocation(np.array([[0.0, 1.0, 2.0], bid]))


@pytest.mark.parametrize("gpus", range(4, 64, 4))
def test_a_half_that_is_whole_is_kept_whole_whatever_rounding_says(gpus: int) -> None:
    linear = np.append(1e-9, np.arange(1.0, gpus + 1.0))
    award = partial_allocation(np.stack([linear, linear]))
    assert award.fair.tolist() == [gpus // 2] * 2
    assert award.gpus.tolist() == [gpus // 4] * 2


def test_what_an_app_keeps_is_rounded_down() -> None:
    # Of two equal linear apps each keeps half of its three GPUs: one and a half.
    award = partial_allocation(np.tile(np.arange(7.0), (2, 1)))
    assert (award.fair.tolist(), award.gpus.tolist()) == ([3, 3], [1, 1])
    assert award.keeps == pytest.approx([0.5, 0.5])
