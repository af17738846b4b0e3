"""Learning: the training runs, whether they helped, and the verdicts that people corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response

from perdure.service.access.auth import Role
from perdure.service.learning.learnt_messages import LearntMessage
from perdure.service.learning.outcome_store import Aside
from perdure.service.store.queries import learning
from perdure.service.store.queries.learning import CorrectionRow, TermRow
from perdure.service.web.api.learning import (
    MAX_VALUE,
    Incarnation,
    Word,
    approve_again,
    aside_for,
    confirm_word,
    corrections_for,
    learner_of,
    messages_for,
    put_aside,
    put_right,
)
from perdure.service.web.api.params import JobId
from perdure.service.web.pages.listing import Columns, ListingAddress, Wanted, arranged, at, csv_file, known_value
from perdure.service.web.pages.render import done, page
from perdure.service.web.state import Here, Operator, Viewer

router = APIRouter()

Kind = Annotated[Literal["user", "message", "day"], Form()]
Seen = Annotated[str, Form(min_length=1, max_length=64)]
Value = Annotated[str, Form(min_length=1, max_length=MAX_VALUE)]


def _site_accuracy(row: TermRow, which: str) -> float | None:
    """On the site's examples that were held back; none where there were none."""
    found = row.term[which]
    return found["balanced_accuracy"] if found["examples"] else None


ROUNDS: Columns[TermRow] = (
    ("time", lambda row: at(row.time_s)),
    ("training_examples", lambda row: row.term["lessons"]),
    ("offered", lambda row: row.term["offered"]),
    ("from_people", lambda row: row.term["persons"]),
    ("reference_accuracy_before", lambda row: row.term["fixed_before"]["balanced_accuracy"]),
    ("reference_accuracy_after", lambda row: row.term["fixed_after"]["balanced_accuracy"]),
    ("site_examples_held_back", lambda row: row.term["site_after"]["examples"]),
    ("site_accuracy_before", lambda row: _site_accuracy(row, "site_before")),
    ("site_accuracy_after", lambda row: _site_accuracy(row, "site_after")),
    ("adopted", lambda row: row.term["adopted"]),
    ("in_use", lambda row: row.in_use),
    ("reason", lambda row: row.term["reason"]),
)
CORRECTIONS: Columns[CorrectionRow] = (
    ("job_id", lambda row: row.job_id),
    ("attempt", lambda row: row.incarnation),
    ("corrected_to", lambda row: row.label),
    ("by", lambda row: row.by),
    ("for_all_users", lambda row: row.for_all or bool(row.confirmed_by)),
    ("time", lambda row: at(row.time_s)),
    ("message", lambda row: row.message),
)
MESSAGES: Columns[LearntMessage] = (
    ("message", lambda row: row.message),
    ("fingerprint", lambda row: row.fingerprint),
    ("passed", lambda row: row.passed),
    ("failed_alike", lambda row: row.failed),
    ("users", lambda row: " ".join(row.users)),
    ("set_aside", lambda row: row.set_aside),
    ("next_job", lambda row: row.says),
    ("verdicts_changed", lambda row: "; ".join(f"{each.says}: {each.jobs}" for each in row.changed)),
    ("latest", lambda row: at(row.time_s)),
)
ROUNDS_BY: Mapping[str, Callable[[TermRow], Any]] = {
    "when": lambda row: row.time_s,
    "examples": lambda row: row.term["lessons"],
    "people": lambda row: row.term["persons"],
    "reference": lambda row: row.term["fixed_after"]["balanced_accuracy"],
    "site": lambda row: row.term["site_after"]["balanced_accuracy"],
}
CORRECTIONS_BY: Mapping[str, Callable[[CorrectionRow], Any]] = {
    "job": lambda row: row.job_id,
    "verdict": lambda row: row.transient,
    "by": lambda row: row.by,
    "corrected": lambda row: row.time_s,
}


@router.get("/learning")
def learning_page(
    request: Request, web: Here, identity: Viewer, asked: Wanted, table: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    """The training runs and the corrections; one of the two tables as CSV."""
    known_value("sort", asked.sort.removeprefix("-"), {**ROUNDS_BY, **CORRECTIONS_BY})
    said = arranged(corrections_for(web, identity), CORRECTIONS_BY, asked)
    rounds = arranged(learning.rounds(web.reader, 20), ROUNDS_BY, asked)
    if asked.is_csv and table == "corrections":
        return csv_file("corrections", CORRECTIONS, said)
    if asked.is_csv and table != "messages":
        return csv_file("training-runs", ROUNDS, rounds)
    listing = ListingAddress("/learning", asked, {}, (*ROUNDS_BY, *CORRECTIONS_BY))
    messages = messages_for(web, identity)
    if asked.is_csv and table == "messages":
        return csv_file("messages", MESSAGES, messages)
    held, aside = web.learner is not None and web.learner.is_held, aside_for(web, identity)
    return page(
        request, web, "learning", "Learning", rounds=rounds, corrections=said, listing=listing, messages=messages,
        set_aside=aside, messages_aside={one.value for one in aside if one.kind is Aside.MESSAGE}, held=held,
        model=learning.model_in_use(web.reader),
    )  # fmt: skip


@router.post("/do/learning/aside")
def set_aside(request: Request, web: Here, identity: Operator, kind: Kind, value: Value) -> Response:
    """Learn nothing from a user, a message or a day."""
    taught = put_aside(web, identity, kind, value)
    unknown = "" if taught else ": it taught nothing up to now"
    return done(request, f"Nothing is learnt from {kind} {value} any more{unknown}")


@router.post("/do/learning/approve")
def approve(request: Request, web: Here, identity: Operator, kind: Kind, value: Value) -> Response:
    """Let what was set aside count again."""
    approve_again(web, identity, kind, value)
    return done(request, f"What {kind} {value} taught counts again")


@router.post("/do/jobs/{job_id}/attempts/{incarnation}/correction/confirm")
def confirm(
    request: Request, web: Here, identity: Operator, job_id: JobId, incarnation: Incarnation, word: Seen
) -> Response:
    """Let a user's correction, as the page showed it, hold for all users' jobs."""
    confirm_word(web, identity, job_id, incarnation, word)
    return done(request, "Confirmed: it holds for similar failures of all users")


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
    whose = "" if identity.role is Role.OPERATOR else ", for your own jobs until an operator confirms it"
    noted = f"Noted: {label}. Verdicts on what looks alike follow it{whose}"
    said = "Correction taken back" if label == "none" else noted
    return done(request, said)


@router.post("/do/learning/round")
def teach(request: Request, web: Here, identity: Operator) -> Response:  # noqa: ARG001
    """Train now."""
    term = learner_of(web).learn(anyway=True)
    used = term is not None and term.adopted
    return done(request, "Trained: the new model is in use" if used else "Trained, but not used: it was less accurate")


@router.post("/do/learning/rollback")
def roll_back(request: Request, web: Here, identity: Operator, model: Annotated[int, Form(ge=0, le=2**62)]) -> Response:
    """Use the model before the one that the page showed in use."""
    back = learner_of(web).roll_back(model, identity.user)
    return done(request, "The model before is in use again" if back else "The model that came with Perdure is in use")
