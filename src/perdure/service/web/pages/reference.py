"""The reference of the API as a page of this service, made from its own description."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from perdure.service.web.description import described, groups, models
from perdure.service.web.pages.render import page
from perdure.service.web.state import Here, Viewer

router = APIRouter()


@router.get("/docs/api")
def reference_page(request: Request, web: Here, identity: Viewer) -> Response:  # noqa: ARG001
    """Every operation with what it takes and answers, and every form of body."""
    document = described(request.app)
    return page(
        request, web, "reference", "API", groups=groups(document), models=models(document),
        url=str(request.base_url).rstrip("/"),
    )  # fmt: skip
