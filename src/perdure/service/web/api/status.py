"""The state of the service, and tokens for those who may ask it."""

from __future__ import annotations

from fastapi import APIRouter

import perdure
from perdure.errors import NotPermitted
from perdure.service.access.auth import Identity, Role, id_of
from perdure.service.web.api.models import LoginCode, Minted, NewCode, NewToken, StatusItem
from perdure.service.web.state import Here, Operator, Owner, Viewer, WebState

router = APIRouter(tags=["service"])


@router.get("/status")
def status(web: Here, identity: Owner) -> StatusItem:  # noqa: ARG001
    """The state of the service: what it watches, whether it may act, what it cannot see."""
    return standing(web)


@router.post("/tokens", status_code=201)
def mint(web: Here, identity: Operator, body: NewToken) -> Minted:  # noqa: ARG001
    """Make a token for a person or a program. It is shown this once; only its hash is kept."""
    token = web.tokens.mint(body.user, Role(body.role))
    return Minted(id=id_of(web.tokens, token), user=body.user, role=body.role, token=token)


@router.post("/login-codes", status_code=201)
def login_code(web: Here, identity: Viewer, body: NewCode | None = None) -> LoginCode:
    """A code that logs a browser in once, within a quarter of an hour: ``/?code=CODE``.

    It is for whoever asks; an operator may name another user.
    """
    if body is None or not body.user:
        return LoginCode(code=web.tokens.login_code(identity))
    if identity.role is not Role.OPERATOR:
        raise NotPermitted("/login-codes", "only an operator gets a code for others", "Ask for one of your own")
    return LoginCode(code=web.tokens.login_code(Identity(body.user, Role(body.role))))


def standing(web: WebState) -> StatusItem:
    promise = web.learner.promise if web.learner else None
    widened = promise.says if promise and promise.is_widened else ""
    return StatusItem.of(web.operations.status(), perdure.__version__, widened)
