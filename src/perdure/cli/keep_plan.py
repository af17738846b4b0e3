"""Asks a planner about the successor of a running link, with what can be known of the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from perdure.cli.keep_outlook import Outlook
from perdure.cli.trained_planner import trained_planner
from perdure.succession.chain_state import JobChain, Link
from perdure.succession.planners.fallback import OrLikeJobs
from perdure.succession.planners.registry import planner_named
from perdure.succession.protocol import Decision, Forecast, ForecastOutcome, Planner, Trainable, View

LOOKS_EACH_S = 3600.0  # at the queue, as in training
HISTORY = 24  # looks
MIN_DECISIONS = 8  # within a walltime, so that a short link is not missed between two of them
UNKNOWN_S = 600.0  # until a forecast that could not be made is tried again
BY_FORECAST = ("rollout", "conformal")
SOON_S = 2.0  # until a forecast that is being made is looked for again

OutlookOf = Callable[[JobChain, float], Outlook | None]


@dataclass(slots=True)
class Deciding:
    """Asks the planner of each chain."""

    outlook: OutlookOf  # None while it is being made
    folder: Path = Path()  # of the chains
    _planners: dict[str, Planner] = field(default_factory=dict)  # by chain
    _looks: dict[str, list[tuple[float, tuple[float, ...]]]] = field(default_factory=dict)  # at the queue, by chain

    def __call__(self, chain: JobChain, current: Link, now: float) -> tuple[Decision, Forecast | None]:
        """The decision, and the wait that was forecast."""
        planner = self._planner(chain)
        outlook = Outlook() if planner.name == "reactive" else self.outlook(chain, now)
        if outlook is None:
            return Decision(False, now + SOON_S, "how long a successor would wait is being found out"), None
        view = replace(view_of(chain, current, now, outlook), queue=self._queue(chain, now, outlook))
        decision = planner.decide(view)
        if decision.submit:
            return decision, outlook.forecast
        often_s = max(1.0, chain.spec.walltime_s / MIN_DECISIONS)
        if outlook.forecast is None and planner.name != "reactive":  # Slurm may answer again by then
            often_s = min(often_s, UNKNOWN_S)
        again_s = max(now + 1.0, min(decision.again_at, now + often_s))
        return Decision(False, again_s, decision.reason), outlook.forecast

    def _planner(self, chain: JobChain) -> Planner:
        if chain.spec.id not in self._planners:
            found = planner_named(chain.spec.planner)
            if isinstance(found, Trainable):
                found = trained_planner(self.folder / chain.spec.id)
            self._planners[chain.spec.id] = OrLikeJobs(found) if found.name in BY_FORECAST else found
        return self._planners[chain.spec.id]

    def _queue(self, chain: JobChain, now: float, outlook: Outlook) -> tuple[tuple[float, ...], ...]:
        """Looks at the queue about as far apart as in training, the newest last."""
        looks = self._looks.setdefault(chain.spec.id, [])
        if outlook.state and (not looks or now - looks[-1][0] >= LOOKS_EACH_S):
            looks.append((now, outlook.state))
            del looks[:-HISTORY]
        older = [state for at_s, state in looks if now - at_s >= LOOKS_EACH_S]
        return (*older, outlook.state)[-HISTORY:] if outlook.state else ()


def view_of(chain: JobChain, current: Link, now: float, outlook: Outlook) -> View:
    """What the planner sees."""
    return View(
        now=now,
        link_started=current.started_s,
        link_ends=current.ends_s or current.started_s + chain.spec.walltime_s,
        overlap_cost=chain.spec.overlap_cost,
        max_interruption=chain.spec.max_interruption,
        forecast=outlook.forecast,
        recent=(*outlook.recent, *waits_of(chain)),
        outcomes=(*outlook.outcomes, *outcomes_of(chain, now)),
    )


def outcomes_of(chain: JobChain, now: float) -> tuple[ForecastOutcome, ...]:
    """What was forecast of this chain's links, and how long they have waited, the newest last."""
    return tuple(
        ForecastOutcome(link.said, (link.started_s or now) - link.submitted_s, link.started_s > 0)
        for link in chain.links
        if link.said is not None and link.submitted_s
    )


def waits_of(chain: JobChain) -> tuple[float, ...]:
    """How long the links of this chain have waited, the newest last."""
    return tuple(
        max(0.0, link.started_s - link.submitted_s) for link in chain.links if link.started_s and link.submitted_s
    )
