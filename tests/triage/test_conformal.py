"""Abstention keeps its promise: the errors of each kind stay under the share that was asked for."""

import json
from importlib import resources
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.triage.conformal import (
    ALPHA_DETERMINISTIC,
    ALPHA_TRANSIENT,
    Thresholds,
    own_thresholds,
    read_thresholds,
    thresholds,
)
from perdure.triage.verdict import Label


def _drawn(rng: Generator, n: int, apart: float) -> tuple[NDArray[np.float64], NDArray[np.bool]]:
    transient = rng.random(n) < 0.3
    z = rng.normal(np.where(transient, apart, -apart), 1.0)
    return 1 / (1 + np.exp(-z)), transient


@pytest.mark.parametrize("apart", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_errors_of_each_kind_stay_under_alpha(apart: float, alpha: float) -> None:
    """Marginal over the draw of both sets: the mean over 300 draws, with four standard errors of slack."""
    rng = np.random.default_rng(7)
    stopped, retried = [], []
    for _ in range(300):
        p, transient = _drawn(rng, 200, apart)
        cut = thresholds(p, transient, alpha, alpha)
        p, transient = _drawn(rng, 200, apart)
        labels = np.array([cut.label(x) for x in p])
        stopped.append((labels[transient] == Label.DETERMINISTIC).mean())
        retried.append((labels[~transient] == Label.TRANSIENT).mean())
    for errors in (stopped, retried):
        assert np.mean(errors) <= alpha + 4 * np.std(errors) / np.sqrt(len(errors))


def test_far_apart_means_never_unsure_and_never_wrong() -> None:
    p = np.array([0.1] * 50 + [0.9] * 50)
    cut = thresholds(p, p > 0.5)
    assert cut == Thresholds(0.9, 0.1)
    assert [cut.label(x) for x in (0.1, 0.9)] == [Label.DETERMINISTIC, Label.TRANSIENT]


def test_with_too_few_of_a_kind_nothing_is_promised_and_nothing_stopped() -> None:
    p = np.array([0.05] * 100 + [0.9] * 10)
    cut = thresholds(p, p > 0.5, alpha_transient=0.05)
    assert cut.transient_from == 0.0
    assert cut.label(0.01) is Label.UNSURE


@pytest.mark.parametrize(("n", "rank"), [(18, None), (19, 19), (20, 20), (38, 38), (39, 38)])
def test_the_threshold_is_the_quantile_of_one_more_than_there_are(n: int, rank: int | None) -> None:
    """Vovk's rank, ceil((n + 1)(1 - alpha)): with 0.05 it takes 19 failures to promise anything."""
    p = np.linspace(0.9, 0.5, n)  # from the most credible one down
    cut = thresholds(p, np.ones(n, bool), alpha_transient=0.05)
    assert cut.transient_from == (p[rank - 1] if rank else 0.0)
    assert thresholds(1 - p, np.zeros(n, bool), alpha_deterministic=0.05).deterministic_to == (
        (1 - p)[rank - 1] if rank else 1.0
    )


def test_the_rates_hold_in_each_set_by_itself() -> None:
    """100 failures that are easy and 100 that are not: the hard ones say where the thresholds lie."""
    rng = np.random.default_rng(3)
    easy, hard = _drawn(rng, 400, 4.0), _drawn(rng, 400, 0.5)
    p, transient = (np.concatenate(both) for both in zip(easy, hard, strict=True))
    sets = np.repeat(["easy", "hard"], 400)
    assert thresholds(p, transient, sets=sets) == thresholds(*hard)
    assert thresholds(p, transient).deterministic_to < thresholds(*hard).deterministic_to


def test_no_family_moves_a_threshold_by_being_left_out() -> None:
    rng = np.random.default_rng(11)
    p, transient = _drawn(rng, 300, 0.7)
    families = rng.integers(0, 40, 300).astype(str)
    cut = thresholds(p, transient, 0.1, 0.1, families=families)
    for name in np.unique(families):
        rest = families != name
        without = thresholds(p[rest], transient[rest], 0.1, 0.1)
        assert cut.transient_from <= without.transient_from
        assert cut.deterministic_to >= without.deterministic_to
    assert cut != thresholds(p, transient, 0.1, 0.1)


def test_one_family_is_no_reason_to_promise_nothing() -> None:
    p, transient = np.array([0.9] * 30 + [0.1] * 30), np.array([True] * 30 + [False] * 30)
    assert thresholds(p, transient, 0.1, 0.1, families=np.full(60, "a")) == thresholds(p, transient, 0.1, 0.1)


def test_a_set_too_small_to_promise_anything_leaves_the_others_alone() -> None:
    p = np.array([0.1] * 50 + [0.9] * 50 + [0.05] * 3)
    transient, sets = p > 0.5, np.repeat(["large", "small"], [100, 3])
    assert thresholds(p, transient | (sets == "small"), sets=sets) == Thresholds(0.9, 0.1)


def test_the_committed_thresholds_kept_their_promise_on_logs_not_seen() -> None:
    """Foundry and real logs, each judged by a model and thresholds that saw nothing of its family or repository."""
    told = json.loads((resources.files("perdure.triage") / "data" / "linear.json").read_text())["promise"]
    for errors in told["held_out"].values():
        assert errors["transient_stopped"] <= told["transient_stopped_at_most"] == ALPHA_TRANSIENT
        assert errors["deterministic_retried"] <= told["deterministic_retried_at_most"] == ALPHA_DETERMINISTIC


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60), st.floats(0.01, 0.5))
def test_a_smaller_alpha_never_makes_a_label_less_credible(rows: list[Any], alpha: float) -> None:
    p, transient = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    loose, strict = thresholds(p, transient, alpha, alpha), thresholds(p, transient, alpha / 2, alpha / 2)
    assert strict.transient_from <= loose.transient_from
    assert strict.deterministic_to >= loose.deterministic_to


@pytest.mark.parametrize("found", [own_thresholds(), Thresholds(0.0, 0.0), Thresholds(1.0, 1.0)])
def test_the_file_survives_a_round_trip(found: Thresholds) -> None:
    assert read_thresholds(found.to_json(), "x") == found
    assert json.loads(found.to_json({"made_by": "make"}))["made_by"] == "make"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"transient_from": "x", "deterministic_to": 0}',
        '{"transient_from": 1.5, "deterministic_to": 0}',
        '{"transient_from": -0.5, "deterministic_to": 0}',
        '{"transient_from": 0, "deterministic_to": 1.5}',
        '{"transient_from": 0, "deterministic_to": -0.5}',
        '{"transient_from": NaN, "deterministic_to": 0}',
        '{"transient_from": 0, "deterministic_to": 1e999}',
        f'{{"transient_from": {10**400}, "deterministic_to": 0}}',
    ],
)
def test_a_bad_file_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^t\.json: ") as caught:
        read_thresholds(text, "t.json")
    assert "\n" not in str(caught.value)
