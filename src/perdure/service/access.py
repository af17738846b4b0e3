"""The door: every route says which role it needs, and nobody gets past without.

A program shows its token (``Authorization: Bearer``). On the Unix socket the kernel says who asks without one
(`perdure.service.peers`): such users reach only what is `own`, and there only what is theirs.

A browser shows the cookie of its session, and with everything that changes something the session's CSRF token, in the
header ``X-CSRF-Token`` or the form field ``csrf``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from perdure.errors import NotPermitted
from perdure.service.auth import Identity, Role, Session, Sessions, TokenBook
from perdure.service.peers import PEER, identity_of
from perdure.service.problems import Unauthenticated

READING = ("GET", "HEAD", "OPTIONS")
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
    peer = request.scope.get("state", {}).get(PEER)
    if session is None and peer is not None and (known := identity_of(peer)) is not None:
        return known
    if session is None:
        raise Unauthenticated(request.url.path, "nobody is logged in", "Send Authorization: Bearer TOKEN, or log in")
    if request.method not in READING and not session.vouches_for(await _csrf_of(request)):
        raise NotPermitted(request.url.path, "the page that asked is out of date", "Load it anew")
    return session.identity


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
    return sessions.find(secret) if secret else None


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
