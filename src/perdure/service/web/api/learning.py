"""What the service learns: corrections by persons, training rounds, and roll-backs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from perdure.errors import ClusterError, NotFound, NotPermitted
from perdure.model.identity import AttemptId
from perdure.service.access.auth import Identity, Role
from perdure.service.learning.learner import Learner
from perdure.service.store.queries import jobs, learning
from perdure.service.web.api.models import Item
from perdure.service.web.api.params import JobId
from perdure.service.web.state import Here, Operator, Owner, Viewer, WebState
from perdure.triage.learning.promise import PromiseCheck

router = APIRouter(tags=["learning"])

Incarnation = Annotated[int, Path(ge=0, le=2**62, description="Number of the attempt that failed")]
Word = Literal["transient", "deterministic", "none"]


class CorrectionAsked(BaseModel):
    """What a failure was, by a person's word; "none" takes it back."""

    model_config = ConfigDict(extra="forbid", strict=True)

    label: Word


class RoundItem(Item):
    """One training round. `term` has its examples, and the metrics before and after."""

    number: int
    time_s: float
    in_use: bool
    term: dict[str, Any]


class CorrectionItem(Item):
    """A person's word on a failure; `for_all`: an operator's, which holds for all users' jobs."""

    job_id: str
    incarnation: int
    time_s: float
    label: str
    by: str
    for_all: bool


class PromiseItem(BaseModel):
    """Whether verdicts kept what they promise in the last 90 days, by failures of which the truth is proven since.

    `stopped` of `passing` failures that pass when run again were stopped, `retried` of `lasting` ones that come back
    retried, by the thresholds as installed. Those in use are widened where that is more than was promised.
    """

    says: str
    widened: bool
    passing: int
    stopped: int
    lasting: int
    retried: int
    transient_from: float
    deterministic_to: float

    @classmethod
    def of(cls, found: PromiseCheck) -> PromiseItem:
        return cls(
            says=found.says,
            widened=found.is_widened,
            passing=found.stops.proven,
            stopped=found.stops.wrong,
            lasting=found.retries.proven,
            retried=found.retries.wrong,
            transient_from=found.thresholds.transient_from,
            deterministic_to=found.thresholds.deterministic_to,
        )


class LearningItem(BaseModel):
    """What the service has learnt, the newest first, and whether its verdicts kept their promise."""

    rounds: list[RoundItem]
    corrections: list[CorrectionItem]
    promise: PromiseItem | None = None  # None where the service does not learn


class RolledBack(BaseModel):
    """Whether there was a learnt model to take back."""

    rolled_back: bool


@router.post("/jobs/{job_id}/attempts/{incarnation}/correction", status_code=204)
def correct(web: Here, identity: Owner, job_id: JobId, incarnation: Incarnation, asked: CorrectionAsked) -> None:
    """Correct the verdict on a failure. An operator's word holds for what looks alike, a user's for their own jobs."""
    put_right(web, identity, job_id, incarnation, asked.label)


@router.get("/learning")
def get_learning(web: Here, identity: Viewer) -> LearningItem:
    """Training rounds and corrections. A viewer sees only their own corrections."""
    said = [c for c in learning.all_corrections(web.reader) if identity.role is Role.OPERATOR or c.by == identity.user]
    return LearningItem(
        rounds=[RoundItem.of_parts(row) for row in learning.rounds(web.reader)],
        corrections=[CorrectionItem.of_parts(row) for row in said],
        promise=PromiseItem.of(web.learner.promise) if web.learner else None,
    )


@router.post("/learning/rounds", status_code=201)
def teach(web: Here, identity: Operator) -> LearningItem:
    """Start a training round now, whether or not there is news."""
    learner_of(web).learn(anyway=True)
    return get_learning(web, identity)


@router.post("/learning/rollback")
def roll_back(web: Here, identity: Operator) -> RolledBack:  # noqa: ARG001
    """Use the model before the one in use."""
    return RolledBack(rolled_back=learner_of(web).roll_back())


def put_right(web: WebState, identity: Identity, job_id: str, incarnation: int, label: Word) -> None:
    """Take a person's word on a failure, or take it back. Raises `NotPermitted`, `NotFound`."""
    if not all(map(identity.may_read_logs_of, jobs.owners_of_log(web.reader, job_id, incarnation))):
        raise NotPermitted(f"job {job_id}", "it belongs to another user", "Ask its owner or an operator")
    attempt = AttemptId(web.reader.cluster, job_id, incarnation)
    if label == "none":
        if not learner_of(web).withdraw(attempt):
            what = f"attempt {incarnation} has no correction"
            raise NotFound(f"job {job_id}", what, "See perdure learn for those that do")
    else:
        learner_of(web).correct(attempt, label == "transient", identity.user, identity.role is Role.OPERATOR)


def learner_of(web: WebState) -> Learner:
    if web.learner is None:
        raise ClusterError(web.reader.cluster, "this service does not learn", "Start it with perdure up")
    return web.learner
