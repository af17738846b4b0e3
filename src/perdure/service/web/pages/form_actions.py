"""What the dashboard's buttons do. Each is a form that comes with the session's CSRF token."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response

from perdure.service.store.queries import actions, nodes
from perdure.service.web.api.actions import place
from perdure.service.web.api.models import MAX_TEXT, Order
from perdure.service.web.api.params import JobId, NodeName
from perdure.service.web.pages.labels import kind as named
from perdure.service.web.pages.render import done
from perdure.service.web.state import Here, Operator

router = APIRouter(prefix="/do")

Key = Annotated[str, Form(min_length=1, max_length=600)]
ReasonText = Annotated[str, Form(max_length=MAX_TEXT)]


@router.post("/jobs/{job_id}")
def ask_of_job(
    request: Request,
    web: Here,
    identity: Operator,
    job_id: JobId,
    kind: Annotated[Literal["hold", "release", "cancel", "retry"], Form()],
    reason: ReasonText = "",
) -> Response:
    """Hold, release, cancel or retry a job."""
    place(web, identity, Order(kind=kind, job_id=job_id, reason=reason), None)
    return done(request, f"{named(kind)}: planned for job {job_id}")


@router.post("/nodes/{name}")
def ask_of_node(
    request: Request,
    web: Here,
    identity: Operator,
    name: NodeName,
    kind: Annotated[Literal["drain", "undrain"], Form()],
    reason: ReasonText = "",
) -> Response:
    """Drain a node, or return it to service."""
    place(web, identity, Order(kind=kind, node=name, reason=reason), None)
    return done(request, f"{named(kind)}: planned for {name}")


@router.post("/faults/{name}")
def break_node(
    request: Request,
    web: Here,
    identity: Operator,  # noqa: ARG001
    name: NodeName,
    kind: Annotated[Literal["fail", "freeze", "thaw", "return"], Form()],
) -> Response:
    """Inject a fault into a node of the embedded cluster."""
    nodes.node(web.reader, name)
    web.operations.fault(name, kind)
    return done(request, f"{name}: {kind}")


@router.post("/withhold")
def withhold(request: Request, web: Here, identity: Operator, key: Key) -> Response:
    """Keep a planned action from being begun."""
    actions.action(web.reader, key)
    web.operations.withhold(key, identity.user)
    return done(request, "Withheld: it will not be carried out")


@router.post("/undo")
def undo(request: Request, web: Here, identity: Operator, key: Key) -> Response:
    """Plan the action that takes a finished one back."""
    actions.action(web.reader, key)
    web.operations.undo(key, identity.user)
    return done(request, "Undo: planned")


@router.post("/kill-switch")
def kill_switch(request: Request, web: Here, identity: Operator, on: Annotated[bool, Form()]) -> Response:
    """Turn the kill switch."""
    note = web.operations.stop_all(on, identity.user)
    said = "Kill switch on: nothing more is begun" if on else "Kill switch off: actions may be begun"
    return done(request, f"{said} ({note})" if note else said)
