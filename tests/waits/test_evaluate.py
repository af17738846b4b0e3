"""Walking forward: what a predictor may know, and what the figures mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.waits import checks
from perdure.waits.evaluate import DAY_S, Answers, pinball, score, threshold, walk
from perdure.waits.protocol import LEVELS, Learned
from perdure.waits.registry import predictor_named
from perdure.waits.table import WaitTable


@pytest.fixture(scope="module")
def table() -> WaitTable:
    return checks.example()


@dataclass(frozen=True)
class Watched:
    """Says an hour of everything, and keeps what it was shown."""

    shown: list[Any]
    name: str = "watched"

    def learn(self, seen: WaitTable, now: float, rng: np.random.Generator, before: Learned | None = None) -> Watched:
        self.shown.append((seen, now, before))
        return self

    def quantiles(self, asked: WaitTable, levels: Sequence[float] = LEVELS) -> NDArray[Any]:
        self.shown.append(asked)
        return np.tile([600.0, 3_600.0, 7_200.0], (len(asked), 1))

    @property
    def remarks(self) -> tuple[str, ...]:
        return ("nothing was learned",)


def test_nothing_later_than_the_look_is_shown(table: WaitTable) -> None:
    watched = Watched([])
    answers = walk(table, watched, 8 * DAY_S)
    learned = [each for each in watched.shown if isinstance(each, tuple)]
    assert [now for _, now, _ in learned] == [(day + 0.5) * DAY_S for day in range(8, 12)]
    assert [before is None for _, _, before in learned] == [True, False, False, False]
    for seen, now, _ in learned:
        assert seen.poll_s.max() < now
        assert np.nanmax(seen.start_s) <= now
        assert seen.seen_until_s.max() <= now
    for asked in watched.shown[1::2]:
        assert not asked.started.any()
        assert np.array_equal(asked.seen_until_s, asked.poll_s)
    assert answers.remarks == ("nothing was learned",)


def test_learning_may_be_done_every_other_day(table: WaitTable) -> None:
    watched = Watched([])
    walk(table, watched, 8 * DAY_S, refit_days=2)
    assert [each[1] // DAY_S for each in watched.shown if isinstance(each, tuple)] == [8, 10]


def test_every_look_from_the_cut_on_is_answered_once(table: WaitTable) -> None:
    answers = walk(table, predictor_named("median"), 8 * DAY_S)
    assert sorted(answers.table.job.tolist()) == table.job[table.poll_s >= 8 * DAY_S].tolist()


@pytest.mark.parametrize("cut_s", [0.0, 99 * DAY_S])
def test_a_cut_with_nothing_on_one_side_is_refused(table: WaitTable, cut_s: float) -> None:
    with pytest.raises(InputError, match="no look at a waiting job lies before it, or none after it"):
        walk(table, predictor_named("median"), cut_s)


def said(table: WaitTable, wait_s: Sequence[float], quantiles_s: list[Any]) -> Answers:
    some = table.take(np.arange(len(wait_s)))
    some = replace(some, poll_s=np.zeros(len(wait_s)), start_s=np.array(wait_s, float))
    return Answers(some, np.array([0, 0, 1, 1]), np.array(quantiles_s, float))


def test_the_figures_of_four_answers(table: WaitTable) -> None:
    found = score(said(table, [1_000, 1_000, 1_000, 10], [[100, 1_000, 10_000]] * 4))
    assert found.n == 4
    assert found.mse_log10 == pytest.approx(1.0)  # once off by two decades
    assert found.within_2x == 0.75
    assert found.coverage == 0.75
    assert found.width_decades == pytest.approx(2.0)
    assert [day.coverage for day in found.days] == [1.0, 0.5]
    assert found.worst_day_coverage == 0.5
    assert found.median_abs_error_s == 0.0
    assert found.pinball_log10 == pytest.approx(((3 * 0.1 + 0.9) / 4, 0.25, (3 * 0.1 + 0.3) / 4))


def test_jobs_that_still_wait_are_not_scored(table: WaitTable) -> None:
    answers = said(table, [1_000, np.nan, 1_000, np.nan], [[100, 1_000, 10_000]] * 4)
    assert score(answers).n == 2
    with pytest.raises(InputError, match="none of the jobs is known to have started"):
        score(said(table, [np.nan] * 4, [[100, 1_000, 10_000]] * 4))


def test_the_pinball_loss_is_least_at_the_quantile() -> None:
    values = np.arange(101.0)
    loss = [pinball(values - guess, 0.9) for guess in (80.0, 90.0, 100.0)]
    assert loss[1] == min(loss)


def test_who_always_says_the_same_is_at_half_of_balanced_accuracy() -> None:
    found = threshold(np.array([10.0, 5_000, 5_000, 5_000]), np.full(4, 1_000.0), 600.0)
    assert (found.base_rate, found.accuracy, found.balanced_accuracy) == (0.75, 0.75, 0.5)
