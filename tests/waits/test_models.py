"""What stands for waits that go on, which looks are learned from, and what is done without LightGBM."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng

from perdure.errors import MissingExtra
from perdure.installation import install_command
from perdure.waits import checks
from perdure.waits.boosting import TrainingSample, targets
from perdure.waits.calibrated import Calibrated
from perdure.waits.features import DAY_S
from perdure.waits.network import Training, log_loss, run, smooth_l1
from perdure.waits.registry import predictor_named
from perdure.waits.ridge import Waves
from perdure.waits.table import WaitTable


@pytest.fixture(scope="module")
def table() -> WaitTable:
    return checks.example()


@pytest.fixture
def no_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)


def test_a_wait_that_goes_on_stands_for_longer_than_it_has_come_to(table: WaitTable) -> None:
    known = table.evidence_at(6.5 * DAY_S)
    found = targets(known, np.full(len(known), 3.0))
    so_far = np.log10(known.waited_s)
    assert np.array_equal(found[known.started], so_far[known.started])
    assert (found[~known.started] > so_far[~known.started]).all()


def test_its_mean_is_that_of_a_normal_distribution_cut_off() -> None:
    rng = default_rng(0)
    drawn = rng.normal(3.0, 0.5, 200_000)
    waiting = checks.example().take(np.arange(1))
    waiting = replace(waiting, start_s=np.array([np.nan]), seen_until_s=waiting.poll_s + 10**3.2)
    assert targets(waiting, np.array([3.0]))[0] == pytest.approx(drawn[drawn > 3.2].mean(), abs=0.01)


def test_a_draw_is_of_new_looks_and_of_many_batches(table: WaitTable) -> None:
    sample, now = TrainingSample(rows=100, half_life_days=1.0, batch_power=1.0), table.poll_s.max()
    rows = sample.draw(table, now, default_rng(0))
    assert len(np.unique(rows)) == 100
    assert (now - table.poll_s[rows]).mean() < 3 * DAY_S < (now - table.poll_s).mean()
    features = table.features.copy()
    alike = table.names.index("peers_request")
    features[:, alike] = np.where(np.arange(len(table)) % 2 == 0, 1_000, 1)
    batches = replace(table, features=features)
    even = replace(sample, half_life_days=1e9).draw(batches, now, default_rng(0)) % 2 == 0
    assert even.mean() < 0.1


def test_the_network_learns_what_is_not_linear() -> None:
    rng = default_rng(0)
    inputs = rng.uniform(-1, 1, (2_000, 2))
    training = Training(hidden=(32, 16), epochs=40, dropout=0.0)
    product = inputs[:, 0] * inputs[:, 1]
    layers = training.fit(inputs, product, smooth_l1, rng)
    assert ((run(layers, inputs) - product) ** 2).mean() < 0.1 * product.var()
    same_sign = (product > 0).astype(float)
    odds = run(training.fit(inputs, same_sign, log_loss, rng), inputs)
    assert ((odds > 0) == (same_sign > 0)).mean() > 0.9


def test_the_ridge_learns_from_waits_that_go_on() -> None:
    """Cut off at a day, long waits look short to who leaves them out."""
    table = checks.example()
    wait = 10 ** (2.5 + 0.7 * np.log10(table.feature("cpus").astype(float) ** 3))
    table = replace(table, start_s=table.poll_s + wait, seen_until_s=table.poll_s + wait)
    known = table.known_at(table.poll_s.max() - 1)
    known = known.take(known.poll_s >= known.poll_s.max())
    assert not known.started.all()
    ended = known.take(known.started)
    big = table.take(table.feature("cpus") == 64)
    with_all = Waves().fit(known, default_rng(0)).predict(big).mean()
    with_ended = Waves().fit(ended, default_rng(0)).predict(big).mean()
    assert with_all > with_ended


def test_the_median_is_what_the_models_say(table: WaitTable) -> None:
    """Past errors set how far the interval reaches; they do not move the median."""
    learned = predictor_named("blend").learn(table, 9.5 * DAY_S, default_rng(0))
    assert isinstance(learned, Calibrated)
    assert len(learned.errors.scores) > 50
    asked = table.take(table.poll_s == 9.5 * DAY_S)
    middle = learned.centre.answer(asked)[0]
    assert np.allclose(np.log10(learned.quantiles(asked, [0.5])[:, 0]), middle)


def test_gbdt_says_what_to_install(no_lightgbm: None, table: WaitTable) -> None:
    with pytest.raises(MissingExtra) as caught:
        predictor_named("gbdt").learn(table, 8 * DAY_S, default_rng(0))
    assert install_command("ml") in str(caught.value)


def test_the_default_answers_without_lightgbm_and_says_so(no_lightgbm: None, table: WaitTable) -> None:
    learned = predictor_named("blend").learn(table, 8 * DAY_S, default_rng(0))
    assert "the ridge answers alone" in learned.remarks[0]
    assert install_command("ml") in learned.remarks[0]
    checks.quantiles_are_waits(predictor_named("blend"), table)


def test_intervals_that_did_not_hold_are_widened_and_this_is_said(table: WaitTable) -> None:
    """For a week waits are a hundred times as long as any before."""
    blend = predictor_named("blend")
    day = table.poll_s // DAY_S
    wait = np.where(day < 7, 60.0, np.where(np.arange(len(table)) % 2 == 0, 6.0, 60_000.0)) + np.arange(len(table)) % 50
    table = replace(table, start_s=table.poll_s + wait, seen_until_s=table.poll_s + wait)
    learned = blend.learn(table, 7.5 * DAY_S, default_rng(0))
    assert isinstance(learned, Calibrated)
    assert learned.widened == 1.0
    for now in (8.5, 9.5):
        learned = blend.learn(table, now * DAY_S, default_rng(0), learned)
    assert isinstance(learned, Calibrated)
    assert learned.widened > 1.0
    assert any("they are widened by the factor" in remark for remark in learned.remarks)
