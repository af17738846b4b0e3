"""What-if questions: send a trace, ask how other policies would have scheduled it, fetch the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from perdure.errors import InputError, NotFound
from perdure.service.access.auth import Identity
from perdure.service.store.queries import history
from perdure.service.web.api.models import ComparisonItem, FormItem, Listing, Offer, UploadItem
from perdure.service.web.api.params import IdempotencyKey
from perdure.service.web.state import Here, Viewer, WebState
from perdure.service.whatif.comparison import Comparison
from perdure.service.whatif.comparison_queue import ComparisonQueue
from perdure.service.whatif.comparison_store import REPORT, RESULT
from perdure.service.whatif.question import (
    ID,
    PLACEMENT_NAMES,
    RETRY_NAMES,
    ComparisonQuestion,
    planned_names,
    policy_names,
)
from perdure.service.whatif.settings import MIB
from perdure.simulation.failures import FAILURE_WORDS
from perdure.traces.read import FORMATS

router = APIRouter(tags=["what-if"])

UPLOADS = "/whatif/uploads"
SIM = ("duckdb", "matplotlib")  # of the optional part `sim`, what a comparison cannot do without in full
KEPT = {"Cache-Control": "private, max-age=86400, immutable"}  # an answer never changes

ComparisonId = Annotated[str, Path(pattern=ID, description="Id of the comparison")]
PictureName = Annotated[str, Path(max_length=20, description="One of `pictures` in the result's summary")]
Theme = Annotated[str, Path(max_length=20, description="light or dark")]


@router.get("/whatif")
def get_offer(web: Here, identity: Viewer) -> Offer:  # noqa: ARG001
    """What can be asked: this site's history and nodes, and the names of policies, placements and forms of traces."""
    queue = comparison_queue_of(web)
    extent = history.extent(web.reader)
    return Offer(
        cluster=history.cluster_spec(web.reader),
        history_jobs=extent.jobs,
        history_since_s=extent.since_s,
        policies=list(policy_names()),
        planned_policies=list(planned_names()) if queue.settings.profiles else [],
        placements=list(PLACEMENT_NAMES),
        retries=list(RETRY_NAMES),
        failures=list(FAILURE_WORDS),
        formats=[FormItem(name=form.name, about=form.about) for form in FORMATS.values()],
        upload_bytes=queue.settings.upload_mib * MIB,
        missing=[module for module in SIM if find_spec(module) is None],
    )


@router.post(
    UPLOADS,
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(
    request: Request,
    web: Here,
    identity: Viewer,
    name: Annotated[str, Query(max_length=200, description="What to call it")] = "",
) -> UploadItem:
    """Send a trace as the body, packed by gzip or not. It is used once, by its sender alone, or dropped in an hour."""
    taken = await comparison_queue_of(web).uploads.take(_whole(request), identity.user, name or "trace")
    return UploadItem(id=taken.id, name=taken.name, bytes=taken.size or 0)


@router.post("/whatif/comparisons", status_code=202)
def ask(web: Here, identity: Viewer, asked: ComparisonQuestion, key: IdempotencyKey = None) -> ComparisonItem:
    """Ask for a comparison. One runs at a time; of viewers each has one at a time."""
    queue = comparison_queue_of(web)
    return item(queue, queue.find(put(web, identity, asked, key).id, identity))


@router.get("/whatif/comparisons")
def list_comparisons(web: Here, identity: Viewer) -> Listing[ComparisonItem]:
    """Comparisons that are kept, the latest first: one's own, and for operators all. Without their results."""
    return Listing(items=listed(comparison_queue_of(web), identity))


@router.get("/whatif/comparisons/{comparison_id}")
def get_comparison(web: Here, identity: Viewer, comparison_id: ComparisonId) -> ComparisonItem:
    """The state of a comparison, and its result."""
    queue = comparison_queue_of(web)
    return item(queue, queue.find(comparison_id, identity))


@router.post("/whatif/comparisons/{comparison_id}/cancel", status_code=202)
def cancel(web: Here, identity: Viewer, comparison_id: ComparisonId) -> None:
    """End a comparison that waits or runs."""
    comparison_queue_of(web).cancel(comparison_id, identity)


@router.delete("/whatif/comparisons/{comparison_id}", status_code=204)
def remove(web: Here, identity: Viewer, comparison_id: ComparisonId) -> None:
    """Forget a comparison that is over, with its answers."""
    comparison_queue_of(web).remove(comparison_id, identity)


@router.get("/whatif/comparisons/{comparison_id}/result")
def get_result(web: Here, identity: Viewer, comparison_id: ComparisonId) -> Response:
    """All figures of each run, as `perdure whatif --json` prints them, and further ones."""
    found = _answer(web, identity, comparison_id, RESULT)
    return Response(found, media_type="application/json", headers=_saved_as(comparison_id, "json"))


@router.get(
    "/whatif/comparisons/{comparison_id}/report",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}}},
)
def get_report(web: Here, identity: Viewer, comparison_id: ComparisonId) -> Response:
    """The answer with its pictures as one HTML file that needs nothing else."""
    found = _answer(web, identity, comparison_id, REPORT)
    return Response(found, media_type="text/html; charset=utf-8", headers=_saved_as(comparison_id, "html"))


@router.get(
    "/whatif/comparisons/{comparison_id}/pictures/{name}/{theme}",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}}},
)
def get_picture(
    web: Here,
    identity: Viewer,
    comparison_id: ComparisonId,
    name: PictureName,
    theme: Theme,
) -> Response:
    """A picture of the answer, for light or dark pages."""
    found = _answer(web, identity, comparison_id, f"{name}-{theme}.png")
    return Response(found, media_type="image/png", headers=KEPT)


def comparison_queue_of(web: WebState) -> ComparisonQueue:
    """Raises `NotFound` where what-if questions are turned off."""
    if web.whatif is None:
        raise NotFound("whatif", "this service takes no what-if questions", "Set whatif.enabled, or use perdure whatif")
    return web.whatif


def put(web: WebState, identity: Identity, asked: ComparisonQuestion, key: str | None) -> Comparison:
    """Take a comparison in, once under a key."""
    queue = comparison_queue_of(web)
    return web.replies.once(identity.user, key, asked, "what-if", lambda: queue.ask(asked, identity))


def item(queue: ComparisonQueue, found: Comparison) -> ComparisonItem:
    """A comparison as the API tells it."""
    return ComparisonItem.of(found, queue.progress(found.id), queue.ahead_of(found.id), queue.summary(found))


def listed(queue: ComparisonQueue, identity: Identity) -> list[ComparisonItem]:
    """All that somebody may see, without the answers: those are files, and this is asked often."""
    return [
        ComparisonItem.of(each, queue.progress(each.id), queue.ahead_of(each.id), None)
        for each in queue.visible_to(identity)
    ]


def _answer(web: WebState, identity: Identity, comparison_id: str, name: str) -> bytes:
    queue = comparison_queue_of(web)
    return queue.store.answer(queue.find(comparison_id, identity).id, name)


def _saved_as(comparison_id: str, suffix: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="whatif-{comparison_id}.{suffix}"'}


async def _whole(request: Request) -> AsyncIterator[bytes]:
    """The body piece by piece. Raises `InputError` where it breaks off."""
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect as err:
        raise InputError("upload", "it broke off, or is too large", "Send it again, packed by gzip") from err
