"""The dashboard's routes, put together."""

from __future__ import annotations

from importlib import import_module

from fastapi import APIRouter, Request
from fastapi.responses import Response

from perdure.errors import NotFound
from perdure.service.web.pages import form_actions, login, reference
from perdure.service.web.pages.assets import assets
from perdure.service.web.pages.navigation import NAVIGATION
from perdure.service.web.state import Anybody

fixed = APIRouter()

ROUTERS: tuple[APIRouter, ...] = (
    *(import_module(f"{__package__}.{entry.name}").router for entry in NAVIGATION),
    form_actions.router,
    reference.router,
    login.router,
    fixed,
)


@fixed.get("/static/{name:path}", dependencies=[Anybody])
def static(request: Request, name: str) -> Response:
    """A script, style or icon. Addressed by its content it may be kept for good."""
    asset = assets().by_name.get(name)
    if asset is None:
        raise NotFound(request.url.path[:120], "no such file", "See the page that links here")
    named = request.query_params.get("v", "") == asset.digest[:12]
    caching = "public, max-age=31536000, immutable" if named else "no-cache"
    return Response(asset.body, media_type=asset.media_type, headers={"Cache-Control": caching})
