"""Logging in and out: a code from the terminal, a token, or the word of a reverse proxy."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from perdure.errors import NotPermitted, Unauthenticated
from perdure.service.access.auth import Identity, TokenBook
from perdure.service.access.sessions import SESSION_LIFE_S, Sessions
from perdure.service.web.pages.render import plain_page
from perdure.service.web.roles import cookie_name, named_by_proxy, session_of
from perdure.service.web.state import Anybody, Viewer

router = APIRouter()


@router.get("/login", dependencies=[Anybody])
def login_page(
    request: Request,
    code: Annotated[str, Query(max_length=200)] = "",
    next_: Annotated[str, Query(alias="next", max_length=500)] = "/",
) -> Response:
    """Ask for a token, or take the code that the service printed when it started."""
    if code and (identity := _tokens(request).redeem(code)):
        return _welcome(request, identity, own_path(next_))
    try:
        if session_of(request):
            return RedirectResponse(own_path(next_), 303)
        if (identity := named_by_proxy(request)) is not None:
            return _welcome(request, identity, own_path(next_))
    except (Unauthenticated, NotPermitted) as err:
        return plain_page("login", 403, wrong=f"{err.where}: {err.what}. {err.fix}.", next=own_path(next_))
    wrong = "This login link has been used, or is too old. perdure open prints a new one." if code else ""
    return plain_page("login", 403 if code else 200, wrong=wrong, next=own_path(next_))


@router.post("/login", dependencies=[Anybody])
def login(
    request: Request,
    token: Annotated[str, Form(max_length=500)] = "",
    next_: Annotated[str, Form(alias="next", max_length=500)] = "/",
) -> Response:
    """Take a token and begin a session."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotPermitted("/login", "another site sent this form", "Log in on this service's own page")
    identity = _tokens(request).find(token.strip()) if token.strip() else None
    if identity is None:
        wrong = "That is not one of this service's tokens. Make one with: perdure token USER"
        return plain_page("login", 403, wrong=wrong, next=own_path(next_))
    return _welcome(request, identity, own_path(next_))


@router.post("/logout")
def logout(request: Request, identity: Viewer) -> Response:  # noqa: ARG001
    """End the session."""
    name = cookie_name(request)
    _sessions(request).close(request.cookies.get(name, ""))
    response = RedirectResponse("/login", 303)
    response.delete_cookie(name, path="/", httponly=True, samesite="strict")
    return response


def _welcome(request: Request, identity: Identity, to: str) -> Response:
    """Set the cookie, and go on from a page of our own: a redirect would still count as the caller's navigation,

    for which the browser keeps a strict cookie back when the link was followed from another site.
    """
    response, forwarded = plain_page("welcome", 200, to=to), request.headers.get("x-forwarded-proto")
    response.set_cookie(
        cookie_name(request),
        _sessions(request).open(identity),
        max_age=int(SESSION_LIFE_S),
        path="/",
        secure=request.url.scheme == "https" or (identity.by_proxy and forwarded == "https"),
        httponly=True,
        samesite="strict",
    )
    return response


def _tokens(request: Request) -> TokenBook:
    tokens: TokenBook = request.app.state.tokens
    return tokens


def _sessions(request: Request) -> Sessions:
    sessions: Sessions = request.app.state.sessions
    return sessions


def own_path(path: str) -> str:
    """`path` where it is a page of this service, else the first one.

    >>> own_path("/jobs"), own_path("//evil.example"), own_path("https://evil.example")
    ('/jobs', '/', '/')
    """
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/") and not path.startswith("//") else "/"
