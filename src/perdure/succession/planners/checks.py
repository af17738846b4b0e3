"""Facts that hold of every planner: run them against one of your own.

Each takes a planner, trained or not, and views (`made_up_views` makes some) and raises `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import structs

from perdure.succession.protocol import Decision, Forecast, ForecastOutcome, Planner, TrainingCase, View
from perdure.succession.queue_state import NAMES

HOUR_S = 3600.0


def made_up_views(n: int = 40, seed: int = 0) -> list[View]:
    """Views of links at random instants of theirs; some lack what a planner would like to know."""
    rng = np.random.default_rng(seed)
    views = []
    for place in range(n):
        started = 1e9 + 3600.0 * place
        mean_s = float(rng.gamma(2.0, 4 * HOUR_S))
        views.append(
            View(
                now=started + float(rng.uniform(0, 48 * HOUR_S)),
                link_started=started,
                link_ends=started + 48 * HOUR_S,
                overlap_cost=float(rng.choice([1.0, 0.25, 0.05])),
                max_interruption=None if place % 5 else 0.1,
                forecast=Forecast.of_samples(rng.gamma(2.0, mean_s / 2, 8)) if place % 7 else None,
                recent=tuple(rng.gamma(1.0, mean_s, 30).tolist()) if place % 11 else (),
                outcomes=_outcomes(rng, mean_s) if place % 3 else (),
                queue=tuple(tuple(rng.random(len(NAMES)).tolist()) for _ in range(24)) if place % 13 else (),
            )
        )
    return views


def made_up_lessons(n: int = 120, seed: int = 0) -> list[TrainingCase]:
    """An even grid of hours at each of which a link begins; waits are about as forecast."""
    rng = np.random.default_rng(seed)
    views = made_up_views(n, seed)
    lessons = []
    for place, each in enumerate(views):
        now = 1e9 + HOUR_S * place
        forecast = each.forecast or Forecast((HOUR_S,))
        view = structs.replace(each, now=now, link_started=now, link_ends=now + 48 * HOUR_S, forecast=forecast)
        lessons.append(TrainingCase(view, forecast.mean_s * float(rng.uniform(0.5, 1.5))))
    return lessons


def at_the_end_it_submits(planner: Planner, views: Sequence[View]) -> None:
    """From the end of the link on, whatever it knows."""
    for view in views:
        for late_s in (0.0, 1.0, 1e6):
            assert planner.decide(structs.replace(view, now=view.link_ends + late_s)).submit


def it_asks_again_in_time(planner: Planner, views: Sequence[View]) -> None:
    """After now, and at the end of the link at the latest: so it never submits after the end."""
    for view in views:
        decision = planner.decide(view)
        assert decision.submit or view.now < decision.again_at <= max(view.link_ends, view.now)
        assert decision.reason
        assert "\n" not in decision.reason


def it_copes_without(planner: Planner, views: Sequence[View]) -> None:
    """It decides where nothing is known but the link itself."""
    for view in views:
        bare = View(view.now, view.link_started, view.link_ends, view.overlap_cost, view.max_interruption, None)
        assert isinstance(planner.decide(bare), Decision)


def deciding_changes_nothing(planner: Planner, views: Sequence[View]) -> None:
    """The same view gives the same decision, in whatever order views come."""
    first = [planner.decide(view) for view in views]
    assert first == [planner.decide(view) for view in reversed(views)][::-1]


def epoch_does_not_matter(planner: Planner, views: Sequence[View]) -> None:
    """Only differences of instants count."""
    for view in views:
        by = 7 * 86_400.0
        later = structs.replace(
            view, now=view.now + by, link_started=view.link_started + by, link_ends=view.link_ends + by
        )
        assert planner.decide(view).submit == planner.decide(later).submit


def _outcomes(rng: np.random.Generator, mean_s: float) -> tuple[ForecastOutcome, ...]:
    waits = rng.gamma(2.0, mean_s / 2, 60)
    return tuple(
        ForecastOutcome(Forecast.of_samples(rng.gamma(2.0, mean_s / 2, 8)), wait, bool(started))
        for wait, started in zip(waits.tolist(), rng.random(60) < 0.9, strict=True)
    )


FACTS: tuple[Callable[[Planner, Sequence[View]], None], ...] = (
    at_the_end_it_submits,
    it_asks_again_in_time,
    it_copes_without,
    deciding_changes_nothing,
    epoch_does_not_matter,
)
