"""The first page: how the cluster stands now, and what was decided recently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from perdure.service.store.queries import actions, jobs, summary
from perdure.service.store.queries.summary import Load, Spell
from perdure.service.store.queries.waits import waits_of
from perdure.service.web.pages.labels import DAY_S, HOUR_S
from perdure.service.web.pages.render import page
from perdure.service.web.state import Here, Viewer, WebState

router = APIRouter()

DECISIONS = 10
JOBS = 6
CAUSES = 8


@router.get("/")
def now_page(request: Request, web: Here, identity: Viewer) -> Response:  # noqa: ARG001
    """How the cluster stands."""
    if "code" in request.query_params:  # logged in already: the code need not stay in the address
        return RedirectResponse("/", 303)
    return page(request, web, "now", "Now", **_standing(web))


def _standing(web: WebState) -> dict[str, Any]:
    reader, now = web.reader, web.now()
    load = summary.load(reader)
    causes = summary.causes(reader, now - DAY_S)
    decisions = summary.latest_decisions(reader, DECISIONS)
    window = window_of(summary.first_failure_s(reader, now - DAY_S), now)
    spells = summary.spells(reader, window.start_s, now, window.spell_s)
    running = jobs.find_jobs(reader, states=["running", "suspended"], limit=JOBS).items
    waiting = jobs.find_jobs(reader, states=["pending", "held"], limit=JOBS).items
    return {
        "running": load.get("running", Load()),
        "waiting": load.get("pending", Load()),
        "held": load.get("held", Load()),
        "unanswered": summary.waiting_for_a_person(reader),
        "gpus": summary.gpus(reader),
        "failures": sum(cause.failures for cause in causes),
        "recovered": sum(cause.recovered for cause in causes),
        "causes": causes[:CAUSES],
        "more_causes": causes[CAUSES:],
        "wasted": sum(cause.wasted_gpu_h for cause in causes),
        "saved": sum(cause.saved_gpu_h for cause in causes),
        "limited": sum(cause.limited for cause in causes),
        "lost_to_limits": sum(cause.limit_gpu_h for cause in causes),
        "window": window,
        "chart": chart(spells, window),
        "decisions": decisions,
        "acts": actions.actions_for(reader, {row.exception.record.subject.job_id for row in decisions}),
        "running_jobs": running,
        "attempts": jobs.running_attempts(reader, [row.job.job_id for row in running]),
        "waiting_jobs": waiting,
        "waits": waits_of(reader, [row.job for row in waiting]),
    }


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The stretch of time that the chart shows, cut into spells."""

    words: str
    start_s: float
    spell_s: float


def window_of(first_s: float | None, now: float) -> TimeWindow:
    """A day in hours; two hours in spells of five minutes where nothing is older."""
    if first_s is not None and first_s > now - 2 * HOUR_S:
        spell_s, length_s, words = 300.0, 2 * HOUR_S, "last 2 hours"
    else:
        spell_s, length_s, words = HOUR_S, DAY_S, "last 24 hours"
    return TimeWindow(words, (now // spell_s + 1) * spell_s - length_s, spell_s)


def chart(spells: Sequence[Spell], window: TimeWindow) -> dict[str, Any]:
    """What the drawing script reads: an axis of time and two series over it."""
    return {
        "spell": window.spell_s,
        "times": [spell.start_s for spell in spells],
        "series": [
            {"label": "Wasted", "tone": "bad", "values": [round(spell.wasted_gpu_h, 5) for spell in spells]},
            {"label": "Saved", "tone": "good", "values": [round(spell.saved_gpu_h, 5) for spell in spells]},
        ],
        "unit": "GPU-h",
    }
