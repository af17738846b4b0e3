"""Facts that hold of every planner, and what single ones decide."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from perdure.errors import ConfigError
from perdure.succession.planners import checks
from perdure.succession.planners.conformal import FEW, Conformal
from perdure.succession.planners.fallback import LEAST_WAITS, OrLikeJobs
from perdure.succession.planners.registry import AGENTS, DEFAULT, NAMES, planner_named
from perdure.succession.planners.stopping import Stopping
from perdure.succession.planners.terms import by_wait
from perdure.succession.protocol import Forecast, ForecastOutcome, Planner, Trainable, View

HOUR_S = 3600.0
LEARNING = [name for name in NAMES if isinstance(planner_named(name), Trainable) and name not in AGENTS]
VIEWS = checks.made_up_views()
VIEW = View(
    now=1e9, link_started=1e9, link_ends=1e9 + 10 * HOUR_S, overlap_cost=0.25, max_interruption=None, forecast=None
)


@pytest.fixture(
    scope="module",
    params=[(name, trained) for name in NAMES for trained in (False, True) if not trained or name in LEARNING],
)
def planner(request: pytest.FixtureRequest) -> Planner:
    name, trained = request.param
    found = planner_named(name)
    if not (trained and isinstance(found, Trainable)):
        return found
    return found.train(checks.made_up_lessons(), np.random.default_rng(0))


@pytest.mark.parametrize("fact", checks.FACTS, ids=lambda fact: fact.__name__)
def test_fact(planner: Planner, fact: Callable[[Planner, Sequence[View]], None]) -> None:
    fact(planner, VIEWS)


@pytest.mark.parametrize("fact", checks.FACTS, ids=lambda fact: fact.__name__)
def test_fact_of_a_planner_with_a_fallback(fact: Callable[[Planner, Sequence[View]], None]) -> None:
    fact(OrLikeJobs(planner_named(DEFAULT)), VIEWS)


def test_a_decision_takes_well_under_a_second(planner: Planner) -> None:
    took = []
    for view in VIEWS[:9]:
        began = time.process_time()
        planner.decide(view)
        took.append(time.process_time() - began)
    assert np.median(took) < 0.1


def test_each_has_the_name_it_is_found_by() -> None:
    assert [planner_named(name).name for name in NAMES] == list(NAMES)
    assert DEFAULT in NAMES
    with pytest.raises(ConfigError, match="Use one of"):
        planner_named("oracle")


def test_the_reactive_planner_never_submits_before_the_end() -> None:
    assert not any(planner_named("reactive").decide(view).submit for view in VIEWS)


@pytest.mark.parametrize("name", ["rollout", "conformal"])
@pytest.mark.parametrize(("price", "submits"), [(1.0, False), (0.25, True)])
def test_cheap_overlap_submits_earlier(name: str, price: float, submits: bool) -> None:
    """At a price of 1 half of the starts are to be late, at 0.25 a fifth: 1 / (1 + price)."""
    forecast = Forecast.of_samples(np.linspace(0, 12 * HOUR_S, 33))
    at_9 = structs.replace(VIEW, link_ends=VIEW.now + 9 * HOUR_S, forecast=forecast, overlap_cost=price)
    assert planner_named(name).decide(at_9).submit is submits


def test_an_accepted_probability_goes_before_a_price() -> None:
    forecast = Forecast.of_samples(np.linspace(0, 12 * HOUR_S, 33))
    view = structs.replace(VIEW, forecast=forecast, overlap_cost=1.0)
    assert not planner_named("rollout").decide(view).submit
    assert planner_named("rollout").decide(structs.replace(view, max_interruption=0.05)).submit


def test_a_conformal_margin_outweighs_a_model_that_says_too_little() -> None:
    """Where all earlier waits were 9 h longer than said, one hour is said and ten are meant."""
    said = Forecast.of_samples([HOUR_S] * 8)
    view = structs.replace(VIEW, forecast=said)
    believed = structs.replace(view, outcomes=tuple(ForecastOutcome(said, HOUR_S, True) for _ in range(40)))
    corrected = structs.replace(view, outcomes=tuple(ForecastOutcome(said, 10 * HOUR_S, True) for _ in range(40)))
    planner = planner_named("conformal")
    assert not planner.decide(believed).submit
    assert planner.decide(corrected).submit


def test_jobs_that_still_wait_count_for_the_margin() -> None:
    """Waits known from below only are longer than those that are over: leaving them out would be too short."""
    said = Forecast.of_samples([HOUR_S] * 8)
    over = tuple(ForecastOutcome(said, HOUR_S, True) for _ in range(30))
    open_ = tuple(ForecastOutcome(said, 5 * HOUR_S, False) for _ in range(20))
    planner = Conformal()
    end = (ForecastOutcome(said, 30 * HOUR_S, True),)
    assert planner.margin(over + open_ + end, 0.8) > planner.margin(over + end, 0.8)


def off_by(factor: float, n: int = FEW, *, started: bool = True) -> tuple[Any, ...]:
    said = Forecast.of_samples([HOUR_S] * 8)
    return tuple(ForecastOutcome(said, factor * HOUR_S, started) for _ in range(n))


WAITED = structs.replace(VIEW, forecast=Forecast.of_samples([HOUR_S] * 8), recent=(12 * HOUR_S,) * LEAST_WAITS)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, None),
        ({"forecast": None}, "nobody can say how long the successor would wait"),
        ({"forecast": None, "recent": (HOUR_S,) * (LEAST_WAITS - 1)}, None),
        ({"outcomes": off_by(30.0)}, f"half of the last {FEW} forecasts were off by a factor of 30 or more"),
        ({"outcomes": off_by(1 / 20)}, f"half of the last {FEW} forecasts were off by a factor of 20 or more"),
        ({"outcomes": off_by(9.0)}, None),
        ({"outcomes": off_by(30.0, FEW - 1)}, None),
        ({"outcomes": off_by(1 / 30, started=False)}, None),  # it waits for two minutes, and may for the hour
        ({"outcomes": (ForecastOutcome(Forecast.of_samples([1.0]), 59.0, True),) * FEW}, None),  # within a cycle
    ],
)
def test_waits_of_like_jobs_decide_where_forecasts_fail(changed: Mapping[str, Any], told: str | None) -> None:
    view = structs.replace(WAITED, **changed)
    decision = OrLikeJobs(planner_named("conformal")).decide(view)
    if told is None:
        assert decision == planner_named("conformal").decide(view)
    else:
        by_waits = planner_named("quantile").decide(view)
        assert decision == structs.replace(by_waits, reason=f"{told}: {by_waits.reason}")
        assert decision.submit


def test_optimal_stopping_learns_that_waits_are_twice_what_is_said() -> None:
    """The queue grows and shrinks over days, so the wait a while later is about the one now."""
    said_h = 6 + 5 * np.sin(np.arange(600) / 60)
    lessons = [
        structs.replace(
            each, view=structs.replace(each.view, forecast=Forecast.of_samples([HOUR_S * h] * 8)), wait_s=2 * HOUR_S * h
        )
        for each, h in zip(checks.made_up_lessons(600), said_h.tolist(), strict=True)
    ]
    planner = Stopping().train(lessons, np.random.default_rng(0))
    view = structs.replace(VIEW, link_started=VIEW.now - 38 * HOUR_S, forecast=Forecast.of_samples([7 * HOUR_S] * 8))
    assert planner.decide(view).submit
    assert not planner.decide(structs.replace(view, forecast=Forecast.of_samples([2 * HOUR_S] * 8))).submit


def test_samples_of_quantiles_have_these_quantiles() -> None:
    forecast = Forecast.of_quantiles((0.1, 0.5, 0.9), (60.0, 600.0, 6000.0))
    assert forecast.at(0.5) == pytest.approx(600.0)
    assert forecast.waits_s[0] == 60.0
    assert forecast.waits_s[-1] == 6000.0


@pytest.mark.parametrize(
    ("wait_s", "left_s", "told"),
    [
        (30.0, 100.0, "is 30 s, shorter than the 1.7 min that"),
        (7200.0, 90.0, "is 2.0 h, and the link runs for 1.5"),
    ],
)
def test_the_reason_names_short_links_in_minutes_and_seconds(wait_s: float, left_s: float, told: str) -> None:
    view = structs.replace(VIEW, link_ends=VIEW.now + left_s)
    assert told in by_wait(view, wait_s, "the wait").reason
