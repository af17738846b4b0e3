"""Errors as a person in a browser meets them."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from perdure.service.pages.render import is_htmx, plain_page, told
from perdure.service.problems import Problem

NOT_PAGES = ("/api/", "/metrics", "/healthz", "/readyz")


def page_of(request: Request, problem: Problem) -> Response | None:
    """The answer to a browser; None where a program asks."""
    if request.url.path.startswith(NOT_PAGES):
        return None
    if problem.status == 401:
        return _to_login(request)
    words = f"{problem.detail[:1].upper()}{problem.detail[1:]}. {problem.mend}"
    if is_htmx(request):
        return Response(status_code=problem.status, headers=told({"perdure:told": {"text": words, "bad": True}}))
    return plain_page("error", problem.status, title=problem.title, problem=problem)


def _to_login(request: Request) -> Response:
    if is_htmx(request):
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    query = {"next": request.url.path} if request.method == "GET" and request.url.path != "/" else {}
    if code := request.query_params.get("code"):
        query = {"code": code}
    return RedirectResponse(f"/login?{urlencode(query)}" if query else "/login", 303)
