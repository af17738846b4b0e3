"""Conformal quantiles: what is promised holds for exchangeable scores, also where some are known from below only."""

import numpy as np
import pytest

from perdure.waits.conformal import WIDEST, ScoreQuantiles, score_quantiles, widening


def plain(scores: object) -> ScoreQuantiles:
    scores = np.array(scores, float)
    return score_quantiles(scores, np.zeros(len(scores), bool), np.ones(len(scores)))


def test_the_rank_is_that_of_split_conformal() -> None:
    """Of n equal weights the k-th smallest, k = ceil((n + 1) level); at the lower end the mirror image."""
    found = plain(np.arange(1.0, 10.0))  # n = 9
    assert found.at([0.8]).tolist() == [8.0]
    assert found.at([0.85]).tolist() == [9.0]
    assert found.at([0.1, 0.9]).tolist() == [1.0, 9.0]
    assert found.at([0.25]).tolist() == [2.0]


@pytest.mark.parametrize("n", [19, 50])
def test_exchangeable_scores_are_covered_as_promised(n: int) -> None:
    rng = np.random.default_rng(n)
    rounds, held = 4_000, 0
    for _ in range(rounds):
        scores = rng.standard_t(3, n + 1)
        low, high = plain(scores[:n]).at([0.1, 0.9])
        held += low <= scores[n] <= high
    exact = (2 * np.ceil((n + 1) * 0.9) - n - 1) / (n + 1)  # between the two order statistics
    assert held / rounds == pytest.approx(exact, abs=0.02)
    assert exact >= 0.8


def test_scores_known_from_below_do_not_make_quantiles_short() -> None:
    """Waits cut off at random: leaving those out is short of the true quantile, the product limit is not."""
    rng = np.random.default_rng(0)
    truth, cut = rng.exponential(1.0, 20_000), rng.exponential(1.5, 20_000)
    at_least, seen = truth > cut, np.minimum(truth, cut)
    level = np.quantile(truth, 0.7)
    assert score_quantiles(seen, at_least, np.ones(len(seen))).at([0.7])[0] == pytest.approx(level, rel=0.05)
    assert plain(seen[~at_least]).at([0.7])[0] < 0.8 * level


def test_heavier_scores_count_for_more() -> None:
    scores = np.array([0.0, 0.0, 0.0, 1.0])
    found = score_quantiles(scores, np.zeros(4, bool), np.array([1.0, 1, 1, 9]))
    assert found.at([0.5])[0] == 1.0


def test_levels_keep_their_order_and_nothing_is_known_of_nothing() -> None:
    found = plain([3.0, 1.0, 2.0])
    assert (np.diff(found.at(list(np.linspace(0.01, 0.99, 33)))) >= 0).all()
    assert plain([]).at([0.1, 0.9]).tolist() == [0, 0]


def test_intervals_that_held_stay() -> None:
    assert widening(np.r_[np.full(80, 0.5), np.full(20, 3.0)]) == (0.8, 1.0)
    assert widening(np.zeros(0)) == (0.8, 1.0)


def test_intervals_that_did_not_hold_are_widened_until_they_would_have() -> None:
    ratio = np.linspace(0.0, 1.6, 1_001)
    held, factor = widening(ratio)
    assert held < 0.75
    assert (ratio <= factor).mean() == pytest.approx(0.8, abs=0.01)
    assert widening(np.full(100, 50.0)) == (0.0, WIDEST)
