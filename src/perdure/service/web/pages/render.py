"""Templates: escaped without exception, and given only what they show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perdure.coordination.source import Source
from perdure.service.access.auth import Role
from perdure.service.web.pages import labels
from perdure.service.web.pages.assets import assets
from perdure.service.web.pages.navigation import NAVIGATION
from perdure.service.web.pages.policies import policy_title, retry_title
from perdure.service.web.roles import session_of
from perdure.service.web.state import WebState

MOST_COUNTED = 99  # next to a name in the navigation; more are not told apart
TEMPLATES = Path(__file__).parents[1] / "templates"


@cache
def environment() -> Environment:
    """The templates, with autoescape on for every one of them and every value made visible first."""
    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=labels.shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    env.filters.update(
        amount=labels.amount,
        backend=labels.backend,
        capital=labels.capital,
        change=labels.change,
        cause=labels.cause,
        clock=labels.clock,
        component=labels.component,
        fault=labels.fault,
        instant=labels.instant,
        iso=labels.iso,
        job_name=labels.job_name,
        kind=labels.kind,
        marked=labels.marked,
        undo_question=labels.undo_question,
        percent=labels.percent,
        policy=policy_title,
        retry=retry_title,
        segment=segment,
        sentence=labels.sentence,
        severity=labels.severity,
        source=Source.of,
        span=labels.span,
        unbroken=labels.unbroken,
        whole=labels.whole,
        zone=labels.zone,
    )
    env.globals.update(badge=labels.badge, asset=assets().url, navigation=NAVIGATION)
    return env


def segment(text: str) -> str:
    """A part of a path, quoted whole."""
    return quote(text.encode("utf-8", "replace"), safe="")


def page(request: Request, web: WebState, name: str, title: str, *, code: int = 200, **values: Any) -> Response:
    """A page, or only the part of it that lives where htmx asks."""
    session, identity = session_of(request), request.state.identity
    status = web.operations.status()
    now = web.now()
    text = (
        environment()
        .get_template(f"{name}.html")
        .render(
            title=title,
            page=name,
            fragment=is_htmx(request),
            status=status,
            now=now,
            ago=lambda then: labels.ago(then, now),
            csrf=session.csrf if session else "",
            me=identity,
            may_act=session is not None and identity.role is Role.OPERATOR,
            here=request.url.path,
            nav_counts={"exceptions": web.operations.coordinator.count_open(identity, MOST_COUNTED + 1)},
            most_counted=MOST_COUNTED,
            **values,
        )
    )
    return HTMLResponse(text, code, headers={"Vary": "HX-Request"})


def plain_page(name: str, status: int, **values: Any) -> Response:
    """A page that needs nobody to be logged in."""
    return HTMLResponse(environment().get_template(f"{name}.html").render(**values), status)


def is_htmx(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def done(request: Request, words_: str) -> Response:
    """What was asked for is planned: say so, and show how things stand now."""
    if is_htmx(request):
        return Response(status_code=204, headers=told({"perdure:told": {"text": words_}, "perdure:refresh": {}}))
    return RedirectResponse(_back(request), 303)


def told(events: Mapping[str, Any]) -> dict[str, str]:
    """The header that makes htmx raise events in the page. ASCII alone, whatever the words are."""
    return {"HX-Trigger": json.dumps(events)}


def _back(request: Request) -> str:
    """The path of the page that asked; never another site's."""
    path = request.query_params.get("back", "/")
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"
