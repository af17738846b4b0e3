"""Errors over HTTP: problem details (RFC 9457) that say where, what and how to fix it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, computed_field
from starlette.exceptions import HTTPException

from perdure.errors import (
    ClusterBusy,
    ClusterError,
    Fenced,
    ForecastFailed,
    InputError,
    LogRefused,
    MissingExtra,
    NotFound,
    NotPermitted,
    PerdureError,
    StateError,
    TooMany,
    Unauthenticated,
)
from perdure.model.clean_text import clean

log = logging.getLogger("perdure")

MEDIA_TYPE = "application/problem+json"
IN_WORDS = {
    404: ("nothing is at this address", "See /api/v1/openapi.json for the addresses."),
    405: ("this address takes other methods", "Use one of those in the header Allow."),
}
"""What is said where an error has no words but its title, and how to fix it."""

TITLES = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Titles whose words differ between versions of Python; these are RFC 9110's."""

_STATUS: tuple[tuple[type[PerdureError], int], ...] = (
    (NotFound, 404),
    (InputError, 422),
    (NotPermitted, 403),
    (LogRefused, 403),
    (ClusterBusy, 503),
    (StateError, 503),
    (ForecastFailed, 503),
    (ClusterError, 409),
    (Fenced, 409),
    (MissingExtra, 501),
    (Unauthenticated, 401),
    (TooMany, 429),
)


_Said = Annotated[str, BeforeValidator(clean)]  # JSON of others may hold half a character, which none can be sent


class Problem(BaseModel):
    """What went wrong, in the form of RFC 9457, with `where` it is and how to `fix` it added."""

    type: str = "about:blank"
    title: str
    status: int
    detail: _Said
    where: _Said = ""
    fix: _Said = ""

    @computed_field(json_schema_extra={"deprecated": True})  # type: ignore[prop-decorator]
    @property
    def mend(self) -> str:
        """`fix` under its former name, for one release."""
        return self.fix


def title_of(status: int) -> str:
    return TITLES.get(status) or HTTPStatus(status).phrase


def status_of(err: PerdureError) -> int:
    """The HTTP status that an error stands for."""
    return next((status for kind, status in _STATUS if isinstance(err, kind)), 500)


def problem_of(err: PerdureError) -> Problem:
    status = status_of(err)
    return Problem(title=title_of(status), status=status, detail=err.what, where=err.where, fix=f"{err.fix}.")


def answer(problem: Problem) -> JSONResponse:
    headers = {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.status in (429, 503):
        headers["Retry-After"] = "2"
    return JSONResponse(problem.model_dump(), problem.status, headers, MEDIA_TYPE)


RESPONSES: dict[int | str, dict[str, object]] = {
    status: {
        "description": title_of(status),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status in (400, 401, 403, 404, 409, 422, 429, 503)
}
"""What any route of the API may answer besides what it is for; for OpenAPI."""


def allowed_by(routers: Iterable[tuple[str, APIRouter]]) -> Mapping[object, str]:
    """What may be done with the path of each route, by its endpoint: routes of one path each know their own method.

    `routers` come with the prefix that they are included under.
    """
    routes = [
        (prefix + route.path, route)
        for prefix, router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
    ]
    methods: dict[str, set[str]] = {}
    for path, route in routes:
        methods.setdefault(path, set()).update(route.methods or ())
    return {route.endpoint: ", ".join(sorted(methods[path])) for path, route in routes}


PageOf = Callable[[Request, Problem], Response | None]


def install(app: FastAPI, page_of: PageOf, allowed: Mapping[object, str]) -> None:
    """Answer every error of `app` by a problem, or by what `page_of` makes of it for a browser.

    `allowed` has the methods of the path of each endpoint, as `allowed_by` gives them.
    """

    def leave(request: Request, problem: Problem) -> Response:
        return page_of(request, problem) or answer(problem)

    @app.exception_handler(PerdureError)
    async def _known(request: Request, err: PerdureError) -> Response:
        return leave(request, problem_of(err))

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, err: RequestValidationError) -> Response:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        fix = "See /api/v1/openapi.json for what is taken."
        detail = first["msg"]
        if where == "body" and first["type"] != "missing" and "json" not in request.headers.get("content-type", ""):
            detail, fix = "the request does not say that its body is JSON", "Send Content-Type: application/json."
        problem = Problem(title=title_of(422), status=422, detail=detail, where=where, fix=fix)
        return leave(request, problem)

    @app.exception_handler(HTTPException)
    async def _plain(request: Request, err: HTTPException) -> Response:
        detail, fix = str(err.detail), ""
        if detail == HTTPStatus(err.status_code).phrase:
            detail, fix = IN_WORDS.get(err.status_code, (detail, ""))
        title, where = title_of(err.status_code), request.url.path[:200]
        response = leave(request, Problem(title=title, status=err.status_code, detail=detail, where=where, fix=fix))
        response.headers.update(err.headers or {})
        route = request.scope.get("route")
        if err.status_code == HTTPStatus.METHOD_NOT_ALLOWED and route is not None and route.endpoint in allowed:
            response.headers["Allow"] = allowed[route.endpoint]
        return response

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, err: Exception) -> Response:
        log.error("%s %s: unexpected", request.method, request.url.path, exc_info=err)
        fix = "See the service's own log."
        problem = Problem(title="Internal Server Error", status=500, detail="unexpected error", fix=fix)
        return leave(request, problem)
