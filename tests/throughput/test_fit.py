"""Fitting the throughput model: known models come back, intervals hold, and bad profiles are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perdure.throughput.fit import ProfileError, SpeedFit, StepTimes, _AlikeSteps, _loss, fit
from perdure.throughput.speed import SpeedModel
from tests.conftest import require

TRUE = SpeedModel(0.05, 0.002, 0.08, 0.004, 0.02, 0.001, 1.6)
WHERE = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (2, 16), (4, 16), (4, 32)]


def measured(where: list[tuple[int, int]], noise: float, rng: np.random.Generator) -> StepTimes:
    nodes, gpus, batch = np.array([(n, k, m) for n, k in where for m in (8, 16, 32, 64)]).T
    jitter = np.exp(noise * rng.standard_normal((2, len(nodes))))
    return StepTimes(
        nodes, gpus, batch, TRUE.gradient_s(batch) * jitter[0], TRUE.step_s(nodes, gpus, batch) * jitter[1]
    )


def test_a_known_model_predicts_the_same_steps() -> None:
    found = fit(measured(WHERE, 0.0, np.random.default_rng(0))).model
    nodes, gpus = np.array([*WHERE, (8, 64)]).T
    assert found.step_s(nodes, gpus, 48) == pytest.approx(TRUE.step_s(nodes, gpus, 48), rel=0.02)


def test_intervals_hold_as_often_as_they_say() -> None:
    """Nine in ten new measurements lie within: 40 fits of 9 configurations each, a standard error of 2%."""
    rng, inside = np.random.default_rng(1), []
    nodes, gpus = np.array([*WHERE, (3, 12)]).T
    for _ in range(40):
        low, high = fit(measured(WHERE, 0.1, rng)).interval(nodes, gpus, 48, level=0.9)
        new = TRUE.step_s(nodes, gpus, 48) * np.exp(0.1 * rng.standard_normal(len(low)))
        inside += list((low <= new) & (new <= high))
    assert 0.84 <= np.mean(inside) <= 0.97


def across_nodes(found: SpeedFit) -> float:
    low, high = found.interval(2, 16, 32)
    return float(high / low)


def test_what_was_not_measured_is_wide_and_slower_than_within_a_node() -> None:
    rng = np.random.default_rng(2)
    inside, both = fit(measured(WHERE[:4], 0.02, rng)), fit(measured(WHERE, 0.02, rng))
    assert not inside.seen[2]
    assert both.seen[2]
    assert across_nodes(inside) > 2 * across_nodes(both)
    assert inside.model.alpha_n >= 1.1 * np.asarray(inside.model.alpha_r)


def test_one_measured_step_is_enough_for_a_model() -> None:
    found = fit(StepTimes(*(np.array([value]) for value in (1, 1, 32, 0.1, 0.1))))
    assert float(found.model.step_s(1, 1, 32)) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("value", [np.nan, 0.0, -1.0, np.inf])
def test_a_time_that_is_none_is_named(value: float) -> None:
    with pytest.raises(ProfileError, match="step 1: step_s is"):
        StepTimes(np.ones(2, int), np.ones(2, int), np.full(2, 8.0), np.full(2, 0.1), np.array([0.1, value]))


def test_an_empty_profile_is_refused() -> None:
    with pytest.raises(ProfileError, match="empty"):
        StepTimes(*(np.array([]) for _ in range(5)))


def test_measured_profiles_of_sia_are_met(data_dir: Path | None) -> None:
    """On held-out steps of BERT on T4s: half of the predictions within 8%, intervals of 90% hold for 85% or more."""
    duckdb = pytest.importorskip("duckdb")
    where = require("data", data_dir, "no GPU profiles here") / "gpu-profiles" / "sia" / "sia_placements.parquet"
    columns = duckdb.sql(
        f"select num_nodes, num_gpus, local_bsz, step_time - sync_time as gradient, step_time from '{where}' "
        "where app = 'bert' and cluster = 'aws' order by all"
    ).fetchnumpy()
    rows = [np.asarray(columns[name]) for name in ("num_nodes", "num_gpus", "local_bsz", "gradient", "step_time")]
    held_out = np.random.default_rng(0).random(len(rows[0])) < 0.3
    found = fit(StepTimes(*(row[~held_out] for row in rows)))
    nodes, gpus, batch, _, step_s = (row[held_out] for row in rows)
    low, high = found.interval(nodes, gpus, batch)
    assert np.median(np.abs(found.model.step_s(nodes, gpus, batch) / step_s - 1)) < 0.08
    assert np.mean((low <= step_s) & (step_s <= high)) >= 0.85


def test_steps_that_no_model_tells_apart_weigh_by_their_number() -> None:
    """Measured three times or on other nodes, and each time a little off: the loss is that of all rows."""
    rng = np.random.default_rng(0)
    nodes, gpus, batch = (np.repeat(column, 3) for column in ([1, 1, 2, 2, 3], [1, 4, 8, 8, 8], [8, 16, 16, 32, 32]))
    true = SpeedModel(0.02, 0.004, 0.05, 0.003, 0.01, 0.002, 1.6)
    noise = rng.lognormal(0, 0.05, (2, len(nodes)))
    gradient_s, step_s = true.gradient_s(batch) * noise[0], true.step_s(nodes, gpus, batch) * noise[1]
    steps = StepTimes(nodes, gpus, batch.astype(float), gradient_s, step_s)
    alike = _AlikeSteps.of(steps)
    assert sorted(alike.count.tolist()) == [3, 3, 3, 6]  # 8 GPUs are alike on two nodes and on three
    for theta in rng.uniform(0.01, 1.0, (20, 7)) + np.array([0, 0, 0, 0, 0, 0, 1.0]):
        model = SpeedModel(*theta)
        errors = np.log(model.gradient_s(batch) / gradient_s), np.log(model.step_s(nodes, gpus, batch) / step_s)
        ratios = theta[3] / theta[2], theta[5] / theta[4]
        priors = 1e-3 * (theta[6] - 1) ** 2 + 1e-2 * (ratios[0] ** 2 + ratios[1] ** 2)
        assert _loss(theta, alike)[0] == pytest.approx(sum(np.sqrt(np.mean(each**2)) for each in errors) + priors)
