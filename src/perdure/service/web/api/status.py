"""The state of the service, and tokens for those who may ask it."""

from __future__ import annotations

from fastapi import APIRouter

import perdure
from perdure.service.access.auth import Role, id_of
from perdure.service.web.api.models import LoginCode, Minted, NewToken, StatusItem
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
def login_code(web: Here, identity: Viewer) -> LoginCode:
    """A code that logs a browser in once as whoever asks, within a quarter of an hour: ``/?code=CODE``."""
    return LoginCode(code=web.tokens.login_code(identity))


def standing(web: WebState) -> StatusItem:
    promise = web.learner.promise if web.learner else None
    widened = promise.says if promise and promise.is_widened else ""
    return StatusItem.of(web.operations.status(), perdure.__version__, widened)
