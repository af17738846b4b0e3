"""Asks a planner about the successor of a running link, with what can be known of the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from perdure.backends.slurm.request import request_of
from perdure.cli.live_queue import live_queue
from perdure.errors import PerdureError
from perdure.model.table import JobTable
from perdure.scheduling.slurm.site_limits import SiteLimits
from perdure.succession.chain_state import Chain, Link
from perdure.succession.planners.registry import DEFAULT, planner_named
from perdure.succession.protocol import Decision, Forecast, Planner, View
from perdure.waits.answer import answer
from perdure.waits.forecast import LEVELS
from perdure.waits.limits import with_defaults
from perdure.waits.queue import Queue, QueuedJob

MOST_RECENT = 50
MIN_DECISIONS = 8  # within a walltime, so that a short link is not missed between two of them
SEED = 0

Decide = Callable[[Chain, Link, float], Decision]
ForecastOf = Callable[[Chain, float], "Outlook"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be known of a successor's wait."""

    forecast: Forecast | None = None
    recent: tuple[float, ...] = ()


@dataclass(slots=True)
class Deciding:
    """Asks the planner of each chain."""

    outlook: ForecastOf
    _planners: dict[str, Planner] = field(default_factory=dict)

    def __call__(self, chain: Chain, current: Link, now: float) -> Decision:
        planner = self._planner(chain.spec.planner)
        outlook = Outlook() if planner.name == "reactive" else self.outlook(chain, now)
        view = view_of(chain, current, now, outlook)
        decision = planner.decide(view)
        if decision.submit:
            return decision
        often_s = max(1.0, chain.spec.walltime_s / MIN_DECISIONS)
        return Decision(False, max(now + 1.0, min(decision.again_at, now + often_s)), decision.reason)

    def _planner(self, name: str) -> Planner:
        if name not in self._planners:
            self._planners[name] = planner_named(name)
        return self._planners[name]


def checked_planner(name: str | None) -> str:
    """The name of a planner that there is. Raises `ConfigError`."""
    return planner_named(name or DEFAULT).name


def view_of(chain: Chain, current: Link, now: float, outlook: Outlook) -> View:
    """What the planner sees."""
    return View(
        now=now,
        link_started=current.started_s,
        link_ends=current.ends_s or current.started_s + chain.spec.walltime_s,
        overlap_cost=chain.spec.overlap_cost,
        max_interruption=chain.spec.max_interruption,
        forecast=outlook.forecast,
        recent=(*outlook.recent, *waits_of(chain)),
    )


def waits_of(chain: Chain) -> tuple[float, ...]:
    """How long the links of this chain have waited, the newest last."""
    return tuple(
        max(0.0, link.started_s - link.submitted_s) for link in chain.links if link.started_s and link.submitted_s
    )


def live_outlook(script: Callable[[Chain], tuple[bytes, tuple[str, ...]]]) -> ForecastOf:
    """What the live queue tells, as ``perdure when`` reads it; nothing where it cannot be asked."""

    def look(chain: Chain, now: float) -> Outlook:  # noqa: ARG001 - the queue has its own clock
        try:
            queue, site = live_queue()
            job = successor_of(chain, queue, script(chain), site.limits)
            rng = np.random.default_rng(SEED)
            told = answer(job, queue, site, rng, with_alternatives=False).forecast
        except PerdureError:
            return Outlook()
        forecast = None if told is None else Forecast.of_quantiles(LEVELS, told.wait_s)
        return Outlook(forecast, waits_of_alike(site.past.jobs, job))

    return look


def waits_of_alike(past: JobTable, job: QueuedJob) -> tuple[float, ...]:
    """How long jobs of this size in these partitions waited that started last, in seconds, the newest last."""
    alike = np.isin(past.partition, job.partitions) & (past.gpus == job.gpus) & np.isfinite(past.start_s)
    rows = np.flatnonzero(alike)
    rows = rows[np.argsort(past.start_s[rows], kind="stable")][-MOST_RECENT:]
    since_s = np.where(np.isfinite(past.eligible_s[rows]), past.eligible_s[rows], past.submit_s[rows])
    return tuple(np.maximum(0.0, past.start_s[rows] - since_s).tolist())


def successor_of(chain: Chain, queue: Queue, script: tuple[bytes, tuple[str, ...]], limits: SiteLimits) -> QueuedJob:
    """The job that the successor would be if it were submitted now. Raises `InputError`."""
    text, options = script
    request = request_of(text, options, chain.spec.script)
    own = [job.priority for job in queue.waiting() if job.user == chain.spec.user]
    priority = min(own or [job.priority for job in queue.waiting()], default=1)
    return with_defaults(request.as_job(queue, chain.spec.user, priority), limits)
