"""The throughput model, statistical efficiency and the best batch: hand cases, and facts of any model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.throughput.goodput import BatchLimits, StatisticalEfficiency, best_batch, goodput
from perdure.throughput.gpu_types import fill_unseen
from perdure.throughput.speed import SpeedModel

seconds = st.floats(1e-4, 1.0)
models = st.builds(SpeedModel, seconds, st.floats(1e-6, 0.1), seconds, seconds, seconds, seconds, st.floats(1.0, 10.0))


def test_goodput_by_hand(hand_cases: dict[str, Any]) -> None:
    given_, wanted = hand_cases["goodput"]["input"], hand_cases["goodput"]["expected"]
    names = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
    speed = SpeedModel(*(given_[name] for name in names))
    where = given_["nodes"], given_["gpus"], given_["m"], given_["accum"]
    worth = StatisticalEfficiency(given_["phi"], given_["M0"])
    assert float(speed.step_s(*where)) == pytest.approx(wanted["T_iter"], rel=1e-14)
    assert float(speed.throughput(*where)) == pytest.approx(wanted["throughput"], rel=1e-14)
    assert float(worth.efficiency(given_["gpus"] * given_["m"])) == pytest.approx(wanted["efficiency"], rel=1e-14)
    assert float(goodput(speed, worth, *where)) == pytest.approx(wanted["goodput"], rel=1e-14)


def test_bootstrap_by_hand(hand_cases: dict[str, Any]) -> None:
    seen, wanted = hand_cases["sia-bootstrap"]["input"], hand_cases["sia-bootstrap"]["expected"]
    row = np.array([[seen["thr_A1"], np.nan, seen["thr_B1"], seen["thr_BN"]]])
    filled = fill_unseen(row, np.array([1, 8, 1, 8]), np.array([1, 2, 1, 2]), np.array([0, 0, 1, 1]))
    assert filled[0, 1] == pytest.approx(wanted["thr_AN"])


def test_without_any_sample_of_many_gpus_throughput_doubles_with_the_gpus() -> None:
    filled = fill_unseen(np.array([[10.0, np.nan, np.nan]]), np.array([1, 2, 4]), np.ones(3, int), np.zeros(3, int))
    assert filled.tolist() == [[10.0, 20.0, 40.0]]


def test_a_gpu_type_never_seen_stays_unknown() -> None:
    filled = fill_unseen(np.array([[10.0, np.nan]]), np.array([1, 1]), np.ones(2, int), np.array([0, 1]))
    assert np.isnan(filled[0, 1])


@given(models, st.integers(1, 256), st.integers(1, 8), st.integers(1, 8))
def test_overlap_lies_between_the_longer_part_and_the_sum(model: SpeedModel, batch: int, nodes: int, each: int) -> None:
    gradient, sync = float(model.gradient_s(batch)), float(model.synchronise_s(nodes, nodes * each))
    step = float(model.step_s(nodes, nodes * each, batch))
    assert max(gradient, sync) * (1 - 1e-9) <= step <= (gradient + sync) * (1 + 1e-9)


@given(st.floats(0.0, 1e6), st.floats(1.0, 1e4), st.floats(1.0, 1e3))
def test_efficiency_is_the_gain_over_the_scale(noise: float, base: float, scale: float) -> None:
    """The two ways in which it is written agree: (phi + M0) / (phi + M), and gain / scale."""
    worth = StatisticalEfficiency.from_gradients(1.0, noise / base, base)
    gain = (noise / base + 1.0) / (noise / base / scale + 1.0)
    assert float(worth.efficiency(base * scale)) == pytest.approx(gain / scale, rel=1e-9)


def test_pure_noise_makes_every_batch_worth_its_size() -> None:
    assert float(StatisticalEfficiency.from_gradients(0.0, 3.0, 32).efficiency(4096)) == 1.0


@given(models, st.floats(1.0, 1e5), st.integers(1, 64), st.integers(1, 4), st.integers(1, 8), st.booleans())
def test_no_batch_of_a_fine_grid_is_better_by_more_than_its_step(
    model: SpeedModel, noise: float, base: int, nodes: int, each: int, accumulates: bool
) -> None:
    """The choice is within the step of the 50 candidates, and the rounding to whole examples, of all whole batches."""
    gpus, largest_local = nodes * each, 64
    worth, largest = StatisticalEfficiency(noise, base), 64 * base
    limits = BatchLimits(1, largest_local, largest, accumulates)
    best = best_batch(model, worth, limits, nodes, gpus)
    whole = [
        (local, passes - 1)
        for local in range(1, largest_local + 1)
        for passes in range(1, (2 + largest // (local * gpus)) if accumulates else 2)
        if max(base, gpus) <= local * passes * gpus <= largest and (gpus > 1 or local * passes == base or passes > 1)
    ]
    if not accumulates and gpus == 1:
        whole = [(local, more) for local, more in whole if local == base]
    if whole:
        locals_, more = np.array(whole).T
        top = float(goodput(model, worth, nodes, gpus, locals_, more).max())
        # Candidates are 8.9% apart; a local batch of few examples is rounded up by up to one example of them.
        smallest = max(base / gpus, 1.0)
        assert float(best.goodput) >= top / (1.09 * (1 + 1 / smallest))


@given(models, st.floats(1.0, 1e5), st.integers(1, 64), st.booleans())
def test_what_is_chosen_has_the_goodput_that_is_said(
    model: SpeedModel, noise: float, base: int, accumulates: bool
) -> None:
    nodes, gpus = np.array([1, 1, 1, 2, 4]), np.array([1, 2, 4, 8, 16])
    worth = StatisticalEfficiency(noise, base)
    best = best_batch(model, worth, BatchLimits(1, 64, 64 * base, accumulates), nodes, gpus)
    again = goodput(model, worth, nodes, gpus, np.maximum(best.local_batch, 1), best.accumulated)
    assert np.where(best.local_batch > 0, again, 0.0) == pytest.approx(best.goodput)


def test_many_jobs_at_once_are_each_job_alone() -> None:
    speeds = [
        SpeedModel(0.05, 0.001, 0.03, 0.002, 0.01, 0.0005, 2.0),
        SpeedModel(0.2, 0.01, 0.1, 0.01, 0.02, 0.001, 1.2),
    ]
    both = SpeedModel(*(np.array([[getattr(one, name)] for one in speeds]) for name in SpeedModel.__slots__))
    nodes, gpus = np.array([1, 1, 2]), np.array([1, 4, 8])
    worth = StatisticalEfficiency(np.array([[900.0], [50.0]]), np.array([[128], [16]]))
    limits = BatchLimits(1, np.array([[64], [32]]), np.array([[4096], [512]]))
    together = best_batch(both, worth, limits, nodes, gpus)
    for row, (speed, noise, base, local, largest) in enumerate(
        zip(speeds, (900.0, 50.0), (128, 16), (64, 32), (4096, 512), strict=True)
    ):
        alone = best_batch(speed, StatisticalEfficiency(noise, base), BatchLimits(1, local, largest), nodes, gpus)
        assert together.goodput[row].tolist() == alone.goodput.tolist()
        assert together.local_batch[row].tolist() == alone.local_batch.tolist()


def test_a_base_batch_that_no_gpu_holds_is_no_configuration_without_accumulation() -> None:
    speed = SpeedModel(0.05, 0.001, 0.03, 0.002, 0.01, 0.0005, 2.0)
    worth, limits = StatisticalEfficiency(100.0, 512), BatchLimits(1, 64, 4096, False)
    best = best_batch(speed, worth, limits, np.array([1, 1]), np.array([1, 8]))
    assert best.goodput[0] == 0.0
    assert best.local_batch[0] == 0
    assert best.goodput[1] > 0.0


def test_one_gpu_makes_two_passes_of_more_than_the_base_batch_so_that_noise_can_be_seen() -> None:
    model, limits = SpeedModel(0.05, 0.001, 0.1, 0.0, 0.1, 0.0, 1.0), BatchLimits(8, 4096, 4096)
    noisy = StatisticalEfficiency(1e6, 128.0)  # any batch is nearly worth its size
    best = best_batch(model, noisy, limits, np.array([1, 1]), np.array([1, 2]))
    assert best.accumulated.tolist() == [1, 0]
    assert best.local_batch.tolist() == [2048, 2048]


def test_all_gpus_together_take_at_least_what_each_must() -> None:
    """Eight GPUs of 32 examples at least have no batch below 256, however well one of 128 would do."""
    model, limits = SpeedModel(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0), BatchLimits(32, 64, 4096)
    no_noise = StatisticalEfficiency(0.0, 128.0)  # whatever is above the base batch is wasted
    best = best_batch(model, no_noise, limits, np.array([1]), np.array([8]))
    assert (best.local_batch.tolist(), best.accumulated.tolist()) == ([32], [0])


def test_a_local_batch_is_rounded_up() -> None:
    """Of 100 examples on three GPUs each takes 34: 33 would leave one out."""
    model, limits = SpeedModel(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0), BatchLimits(1, 64, 100)
    best = best_batch(model, StatisticalEfficiency(0.0, 100.0), limits, np.array([1]), np.array([3]))
    assert best.local_batch.tolist() == [34]


def test_more_gpus_than_the_largest_batch_feeds_are_no_configuration() -> None:
    model, limits = SpeedModel(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0), BatchLimits(32, 64, 128)
    best = best_batch(model, StatisticalEfficiency(1e4, 64.0), limits, np.array([1, 1]), np.array([4, 8]))
    assert best.goodput[0] > 0.0
    assert (best.goodput[1], best.local_batch[1]) == (0.0, 0)
