"""Envy by hand: who would rather have had another's share of the GPUs."""

from __future__ import annotations

import numpy as np
import pytest

from perdure.scheduling.elastic import GpuType
from perdure.simulation import fairness
from perdure.simulation.elastic import ElasticResult
from perdure.simulation.elastic_metrics import ElasticMetrics
from perdure.simulation.fairness import envy

TYPES = GpuType("fast", 1, 4), GpuType("slow", 1, 4)


def result(
    held: list[list[float]],
    *,
    submit_s: tuple[float, ...] | None = None,
    end_s: tuple[float, ...] | None = None,
    asked: tuple[int, ...] | None = None,
    alone: list[list[float]] | None = None,
) -> ElasticResult:
    """Jobs that held so many GPU-seconds of the two types; on "slow" they take four times as long."""
    n = len(held)
    alone_s = np.array(alone or [[100.0, 400.0]] * n)
    return ElasticResult(
        "any",
        np.array(submit_s or (0.0,) * n),
        np.array(submit_s or (0.0,) * n),
        np.array(end_s or (1000.0,) * n),
        np.array(asked or (1,) * n),
        alone_s.min(axis=1),
        np.zeros(n, np.int64),
        np.array(held).sum(axis=1),
        np.zeros(n),
        np.ones(n, np.int64),
        np.ones(n, bool),
        10,
        8,
        TYPES,
        np.array(held, float),
        alone_s,
        (),
    )


def test_who_has_the_same_as_others_envies_nobody() -> None:
    assert envy(result([[300.0, 100.0]] * 3)).tolist() == [0.0, 0.0, 0.0]


def test_who_had_half_of_the_time_of_another_misses_half() -> None:
    assert envy(result([[500.0, 0.0], [1000.0, 0.0]])).tolist() == pytest.approx([0.5, 0.0])


def test_the_slow_type_is_worth_what_it_does() -> None:
    assert envy(result([[0.0, 1000.0], [1000.0, 0.0]])).tolist() == pytest.approx([0.75, 0.0])


def test_each_values_shares_by_its_own_speed() -> None:
    found = envy(result([[0.0, 1000.0], [1000.0, 0.0]], alone=[[400.0, 100.0], [100.0, 400.0]]))
    assert found.tolist() == [0.0, 0.0]


def test_a_job_uses_no_more_than_it_asks_for() -> None:
    assert envy(result([[1000.0, 0.0], [4000.0, 0.0]], asked=(1, 4))).tolist() == [0.0, 0.0]


def test_a_share_that_is_too_small_for_a_gang_is_worth_its_part() -> None:
    assert envy(result([[2000.0, 0.0], [1000.0, 0.0]], asked=(4, 1))).tolist() == pytest.approx([0.0, 0.0])


def test_jobs_that_never_met_are_not_compared() -> None:
    found = envy(result([[100.0, 0.0], [1000.0, 0.0]], submit_s=(0.0, 1000.0), end_s=(1000.0, 2000.0)))
    assert found.tolist() == [0.0, 0.0]


def test_a_job_that_runs_nowhere_has_no_value() -> None:
    found = result([[500.0, 0.0], [1000.0, 0.0]], alone=[[np.inf, np.inf], [100.0, 400.0]])
    assert np.isnan(envy(found)[0])
    assert ElasticMetrics.of(found).envy == 0.0


def test_many_jobs_are_compared_in_parts() -> None:
    held = np.random.default_rng(0).uniform(100, 900, (2100, 1)) * [1.0, 0.0]
    found = envy(result(held.tolist()))
    assert found.tolist() == pytest.approx((1 - held[:, 0] / held[:, 0].max()).tolist())


def test_parts_of_any_size_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    asked = tuple(rng.integers(1, 5, 20).tolist())
    begun = rng.uniform(0, 500, 20)
    jobs = result(
        rng.uniform(100, 900, (20, 2)).tolist(),
        submit_s=tuple(begun.tolist()),
        end_s=tuple((begun + 300).tolist()),
        asked=asked,
        alone=rng.uniform(100, 400, (20, 2)).tolist(),
    )
    whole = envy(jobs)
    assert 0 < np.count_nonzero(whole) < 20
    monkeypatch.setattr(fairness, "_ROWS", 3)
    assert envy(jobs).tolist() == pytest.approx(whole.tolist())


def test_a_job_whose_app_had_found_its_model_when_it_came_envies_nobody_and_hides_no_envy() -> None:
    found = envy(result([[500.0, 0.0], [1000.0, 0.0], [0.0, 0.0]], submit_s=(0, 0, 400), end_s=(1000, 1000, 400)))
    assert found.tolist() == pytest.approx([0.5, 0.0, np.nan], nan_ok=True)
