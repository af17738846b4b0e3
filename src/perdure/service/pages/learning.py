"""Learning: what was taught, whether it helped, and what persons said."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response

from perdure.service.api.learning import Incarnation, Word, learner_of, put_right
from perdure.service.api.params import JobId
from perdure.service.auth import Role
from perdure.service.context import Here, Operator, Viewer
from perdure.service.pages.render import done, page
from perdure.service.queries import learning

router = APIRouter()


@router.get("/learning")
def learning_page(request: Request, web: Here, identity: Viewer) -> Response:
    """The rounds of teaching and the corrections."""
    every = learning.all_corrections(web.reader)
    said = [c for c in every if identity.role is Role.OPERATOR or c.by == identity.user]
    return page(request, web, "learning", "Learning", rounds=learning.rounds(web.reader, 20), corrections=said)


@router.post("/do/jobs/{job_id}/attempts/{incarnation}/correction")
def correct(
    request: Request,
    web: Here,
    identity: Viewer,
    job_id: JobId,
    incarnation: Incarnation,
    label: Annotated[Word, Form()],
) -> Response:
    """Correct a verdict, or take the correction back."""
    put_right(web, identity, job_id, incarnation, label)
    said = "Correction taken back" if label == "none" else f"Noted: {label}. Verdicts on what looks alike follow it"
    return done(request, said)


@router.post("/do/learning/round")
def teach(request: Request, web: Here, identity: Operator) -> Response:  # noqa: ARG001
    """Hold a round of teaching now."""
    term = learner_of(web).learn(anyway=True)
    return done(request, "Taught: the new model is in use" if term and term.adopted else "Not adopted: it was worse")


@router.post("/do/learning/rollback")
def roll_back(request: Request, web: Here, identity: Operator) -> Response:  # noqa: ARG001
    """Use the model before the one in use."""
    back = learner_of(web).roll_back()
    return done(request, "The model before is in use again" if back else "The model that came with Perdure is in use")
