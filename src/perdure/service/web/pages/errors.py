"""Errors as a person in a browser meets them: with the navigation, where somebody is logged in."""

from __future__ import annotations

from urllib.parse import urlencode, urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from perdure.service.web.pages.navigation import NAVIGATION, NavigationEntry
from perdure.service.web.pages.render import is_htmx, page, plain_page, told
from perdure.service.web.problems import Problem
from perdure.service.web.roles import session_of

NOT_PAGES = ("/api/", "/metrics", "/healthz", "/readyz")


def page_of(request: Request, problem: Problem) -> Response | None:
    """The answer to a browser; None where a program asks."""
    if request.url.path.startswith(NOT_PAGES):
        return None
    if problem.status == 401:
        return to_login(request)
    above = _above(request.url.path)
    is_for_others = "/api/" in problem.fix or (above is not None and "perdure " in problem.fix)
    if is_for_others:  # a route, or a command, is nothing to a person at a page
        problem = problem.model_copy(update={"fix": ""})
    words = f"{problem.detail[:1].upper()}{problem.detail[1:]}. {problem.fix}".strip()
    if is_htmx(request):
        return Response(status_code=problem.status, headers=told({"perdure:told": {"text": words, "bad": True}}))
    session = session_of(request)
    if session is None or problem.status >= 500:
        return plain_page("error", problem.status, title=problem.title, problem=problem)
    request.state.identity = session.identity
    return page(
        request, request.app.state.web, "problem", problem.title, code=problem.status, problem=problem, above=above
    )


def _above(path: str) -> NavigationEntry | None:
    """The page that lists what the page at `path` is one of."""
    return next((entry for entry in NAVIGATION if path.startswith(f"{entry.path}/") and entry.path != "/"), None)


def to_login(request: Request) -> Response:
    """To the log-in, and from there back to the page that was asked for or is open."""
    if is_htmx(request):
        opened = urlsplit(request.headers.get("hx-current-url", ""))
        return Response(status_code=401, headers={"HX-Redirect": _login({"next": _back(opened.path, opened.query)})})
    if code := request.query_params.get("code"):
        return RedirectResponse(_login({"code": code}), 303)
    back = _back(request.url.path, request.url.query) if request.method == "GET" else ""
    return RedirectResponse(_login({"next": back}), 303)


def _back(path: str, query: str) -> str:
    """The page to return to; "" for the first one."""
    return f"{path}?{query}" if query else path.removeprefix("/") and path


def _login(query: dict[str, str]) -> str:
    given = {name: value for name, value in query.items() if value}
    return f"/login?{urlencode(given)}" if given else "/login"
