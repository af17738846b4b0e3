"""The door: every route says which role it needs, and nobody gets past without.

A program shows its token (``Authorization: Bearer``). On the Unix socket the kernel says who asks without one
(`perdure.service.access.peers`): such users reach only what is `own`, and there only what is theirs.

A reverse proxy that the settings name says whom it has logged in (`perdure.service.access.proxy`). Its word alone
reads the API; a browser gets a session for it, which counts only as long as each request comes with the same word.

A browser shows the cookie of its session, and with everything that changes something the session's CSRF token, in the
header ``X-CSRF-Token`` or the form field ``csrf``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from perdure.errors import NotPermitted, Unauthenticated
from perdure.service.access.auth import Identity, Role, TokenBook
from perdure.service.access.peers import NOBODY_KNOWN, PEER, Peer, identity_of
from perdure.service.access.proxy.login import ProxyLogin
from perdure.service.access.sessions import Session, Sessions

READING = ("GET", "HEAD", "OPTIONS")
PROGRAMS = "/api/"  # how the paths begin that programs ask for
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf"


class Public:
    """The need of a route that anybody may ask."""

    role: Role | None = None

    async def __call__(self) -> None:
        return None


class Requires:
    """The need of a route that asks for a role; yields who asks."""

    def __init__(self, role: Role, *, own: bool = False) -> None:
        """`own`: the route shows users without a token what is theirs, and nothing else."""
        self.role, self.own = role, own

    async def __call__(self, request: Request) -> Identity:
        identity = await identify(request)
        if not identity.role.covers(self.role):
            what = f"a {identity.role} may not do this"
            raise NotPermitted(request.url.path, what, f"Use a token of role {self.role}")
        if identity.own_only and not self.own:
            what = "only your own jobs are shown without a token"
            raise NotPermitted(request.url.path, what, f"Ask the operator for one: perdure token {identity.user}")
        request.state.identity = identity
        return identity


public = Public()
viewer = Requires(Role.VIEWER)
owner = Requires(Role.VIEWER, own=True)
operator = Requires(Role.OPERATOR)


async def identify(request: Request) -> Identity:
    """Who asks. Raises `Unauthenticated`, and `NotPermitted` where a browser's request lacks its CSRF token."""
    tokens: TokenBook = request.app.state.tokens
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        if identity := tokens.find(token.strip()):
            return identity
        raise Unauthenticated("token", "not one of this service's", "Ask its operator: perdure token USER")
    session = session_of(request)
    if session is None and (known := _without_a_session(request)) is not None:
        return known
    if session is None:
        raise Unauthenticated(request.url.path, "nobody is logged in", "Send Authorization: Bearer TOKEN, or log in")
    if request.method not in READING and not session.vouches_for(await _csrf_of(request)):
        raise NotPermitted(request.url.path, "the page that asked is out of date", "Reload it")
    return session.identity


def _without_a_session(request: Request) -> Identity | None:
    """Who asks, by the word of a proxy or of the kernel. What a browser adds unasked is not enough to change things."""
    proxy: ProxyLogin = request.app.state.proxy
    peer = peer_in(request)
    if (named := proxy.identity(peer, request.headers)) is not None:
        return named if request.method in READING and request.url.path.startswith(PROGRAMS) else None
    return None if peer.uid is None or proxy.is_proxy(peer, request.headers) else identity_of(peer.uid)


def peer_in(request: Request) -> Peer:
    """The other end of the connection on which a request came."""
    peer: Peer = request.scope.get("state", {}).get(PEER, NOBODY_KNOWN)
    return peer


def named_by_proxy(request: Request) -> Identity | None:
    """Whom a trusted reverse proxy names. Raises `Unauthenticated`, `NotPermitted`."""
    proxy: ProxyLogin = request.app.state.proxy
    return proxy.identity(peer_in(request), request.headers)


def is_still_known(request: Request, identity: Identity) -> bool:
    """Whether who asked is known yet: a token is revoked, and a session ended, while a long answer goes on."""
    tokens: TokenBook = request.app.state.tokens
    if identity.token_id and not tokens.holds(identity.token_id):
        return False
    by_cookie = "authorization" not in request.headers and cookie_name(request) in request.cookies
    return not by_cookie or session_of(request) is not None


async def _csrf_of(request: Request) -> str:
    if given := request.headers.get(CSRF_HEADER):
        return given
    if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return str((await request.form()).get(CSRF_FIELD, ""))
    return ""


def session_of(request: Request) -> Session | None:
    """The session of the browser that asks, if it has one."""
    sessions: Sessions = request.app.state.sessions
    secret = request.cookies.get(cookie_name(request))
    session = sessions.find(secret) if secret else None
    if session is None or not session.identity.by_proxy:
        return session
    with suppress(Unauthenticated, NotPermitted):  # told to who asks without a session
        return session if named_by_proxy(request) == session.identity else None
    return None


def cookie_name(request: Request) -> str:
    """Cookies know hosts, not ports: two services on one machine must not take each other's."""
    return f"perdure_{request.url.port or 0}"


def needs(route: BaseRoute) -> list[Role | None]:
    """The roles that a route declares; None for a public one. Empty where it declares nothing."""
    dependant: Any = getattr(route, "dependant", None)
    calls = [dependency.call for dependency in dependant.dependencies] if dependant else []
    return [call.role for call in calls if isinstance(call, (Public, Requires))]


def check_every_route_declares(routers: Iterable[APIRouter]) -> None:
    """Raises `RuntimeError` for a route that forgot to say who may ask: such a service must not start."""
    for router in routers:
        for route in router.routes:
            if not isinstance(route, APIRoute) or len(needs(route)) != 1:
                raise RuntimeError(f"{getattr(route, 'path', route)!r} declares no role, or more than one")
