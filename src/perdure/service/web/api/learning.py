"""What the service learns: corrections by persons, training rounds, and roll-backs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from perdure.errors import ClusterError, InputError, NotFound, NotPermitted
from perdure.model.identity import AttemptId
from perdure.service.access.auth import Identity, Role
from perdure.service.learning.learner import Learner
from perdure.service.learning.learnt_messages import LearntMessage
from perdure.service.learning.outcome_store import Aside, SetAside, is_day
from perdure.service.store.queries import jobs, learning
from perdure.service.store.queries.learning import CorrectionRow
from perdure.service.web.api.models import Item
from perdure.service.web.api.params import JobId
from perdure.service.web.state import Here, Operator, Owner, Viewer, WebState
from perdure.triage.learning.promise import PromiseCheck
from perdure.triage.learning.verdict_changes import ChangedJobs

router = APIRouter(tags=["learning"])

Incarnation = Annotated[int, Path(ge=0, le=2**62, description="Number of the attempt that failed")]
MAX_VALUE = 4096
"""Characters of a user's name, a message's fingerprint or a day: no name that a job had is too long."""
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
    word: str = Field(description="Names this very word: who confirms it says so, as it may change meanwhile")
    confirmed_by: str = Field("", description="Operator who let a user's word hold for all users' jobs")
    message: str = Field("", description="The line that the word is about, without numbers, paths and times")


class ChangedJobsItem(Item):
    """How many jobs were decided otherwise than without what the site learnt of their message."""

    was: str = Field(description="The verdict without it")
    became: str
    says: str = Field(description="In the words of decisions: stop, probe, retry")
    by: str = Field(description="outcomes, person, or new: the first jobs with a message are probed")
    jobs: int
    since_s: float

    @classmethod
    def of(cls, found: ChangedJobs) -> ChangedJobsItem:
        change = found.change
        return cls.of_parts(found, was=change.was, became=change.became, by=change.by)


class LearntMessageItem(Item):
    """A message of this site, and what retries proved of it. A viewer sees those of their own jobs."""

    fingerprint: str
    message: str = Field(description="The line that says why, without numbers, paths and times")
    time_s: float
    passed: int = Field(description="Jobs that passed when run again")
    failed: int = Field(description="Jobs that failed the same way on other nodes")
    users: list[str]
    set_aside: int = Field(description="Of these outcomes, how many count for nothing")
    says: str = Field(description="What follows for the next job with this message")
    changed: list[ChangedJobsItem] = Field(description="Verdicts that this changed, as far as is remembered")

    @classmethod
    def of(cls, found: LearntMessage) -> LearntMessageItem:
        changed = [ChangedJobsItem.of(each) for each in found.changed]
        return cls.of_parts(found, users=list(found.users), changed=changed)


class AsideItem(Item):
    """What is not learnt from: by an operator's word, or by the service itself, which says why."""

    kind: str
    value: str
    time_s: float
    by: str
    reason: str = Field(description="Why the service itself set it aside; empty where an operator did")


class ConfirmAsked(BaseModel):
    """Which word on a failure is confirmed: the one that was seen, by `word` of the correction."""

    model_config = ConfigDict(extra="forbid", strict=True)

    word: Annotated[str, StringConstraints(min_length=1, max_length=64)]


class AsideAsked(BaseModel):
    """What to set aside, or to approve: outcomes and words of a user, a message (by its fingerprint) or a day."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["user", "message", "day"]
    value: Annotated[str, StringConstraints(min_length=1, max_length=MAX_VALUE)]


class PutAside(BaseModel):
    """How much something had taught that was set aside."""

    taught: int = Field(description="Outcomes and users' words that count for nothing; 0: nothing is known of it")


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
    messages: list[LearntMessageItem] = []
    set_aside: list[AsideItem] = []
    model: int = Field(0, description="Training run whose model is in use; 0: the one that came with Perdure")
    held: bool = Field(False, description="A model was taken back, and none is trained until somebody asks for it")
    promise: PromiseItem | None = None  # None where the service does not learn


class RollbackAsked(BaseModel):
    """Which model is taken back: the one that was seen in use, by the number of its training run."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[int, Field(ge=0, le=2**62)]


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
    return LearningItem(
        rounds=[RoundItem.of_parts(row) for row in learning.rounds(web.reader)],
        corrections=[CorrectionItem.of_parts(row) for row in corrections_for(web, identity)],
        messages=[LearntMessageItem.of(each) for each in messages_for(web, identity)],
        set_aside=[AsideItem.of_parts(each, kind=each.kind.value) for each in aside_for(web, identity)],
        model=learning.model_in_use(web.reader),
        held=web.learner is not None and web.learner.is_held,
        promise=PromiseItem.of(web.learner.promise) if web.learner else None,
    )


@router.post("/learning/aside")
def set_aside(web: Here, identity: Operator, asked: AsideAsked) -> PutAside:
    """Learn nothing from a user, a message or a day, and unlearn what they taught. Nothing is deleted."""
    return PutAside(taught=put_aside(web, identity, asked.kind, asked.value))


@router.post("/learning/approve", status_code=204)
def approve(web: Here, identity: Operator, asked: AsideAsked) -> None:
    """Let what was set aside count again."""
    approve_again(web, identity, asked.kind, asked.value)


@router.post("/jobs/{job_id}/attempts/{incarnation}/correction/confirm", status_code=204)
def confirm(web: Here, identity: Operator, job_id: JobId, incarnation: Incarnation, asked: ConfirmAsked) -> None:
    """Let a user's correction hold for the jobs of all users, and be taught; 409 where it has changed since."""
    confirm_word(web, identity, job_id, incarnation, asked.word)


@router.post("/learning/rounds", status_code=201)
def teach(web: Here, identity: Operator) -> LearningItem:
    """Start a training round now, whether or not there is news."""
    learner_of(web).learn(anyway=True)
    return get_learning(web, identity)


@router.post("/learning/rollback")
def roll_back(web: Here, identity: Operator, asked: RollbackAsked) -> RolledBack:
    """Use the model before the named one, which is in use, else 409; none is trained until a round is asked for."""
    return RolledBack(rolled_back=learner_of(web).roll_back(asked.model, identity.user))


def put_right(web: WebState, identity: Identity, job_id: str, incarnation: int, label: Word) -> None:
    """Take a person's word on a failure, or take it back. Raises `NotPermitted`, `NotFound`."""
    if not all(map(identity.may_read_logs_of, jobs.owners_of_log(web.reader, job_id, incarnation))):
        raise NotPermitted(f"job {job_id}", "it belongs to another user", "Ask its owner or an operator")
    attempt = AttemptId(web.reader.cluster, job_id, incarnation)
    if label == "none":
        if not learner_of(web).withdraw(attempt, identity.role is Role.OPERATOR):
            what = f"attempt {incarnation} has no correction"
            raise NotFound(f"job {job_id}", what, "See perdure learn for those that do")
    else:
        learner_of(web).correct(attempt, label == "transient", identity.user, identity.role is Role.OPERATOR)


def corrections_for(web: WebState, identity: Identity) -> tuple[CorrectionRow, ...]:
    """The words that somebody may see: an operator all persons', others their own."""
    return learning.all_corrections(web.reader, by=None if identity.role is Role.OPERATOR else identity.user)


def messages_for(web: WebState, identity: Identity) -> list[LearntMessage]:
    """The messages that somebody may see: an operator all, others those of their own jobs."""
    if web.learner is None:
        return []
    return web.learner.messages("" if identity.role is Role.OPERATOR else identity.user)


def aside_for(web: WebState, identity: Identity) -> list[SetAside]:
    """What is set aside; for operators."""
    if web.learner is None or identity.role is not Role.OPERATOR:
        return []
    return [each for each in web.learner.store.outcomes.set_aside() if each.is_shown]


def put_aside(web: WebState, identity: Identity, kind: str, value: str) -> int:
    """Set something aside; of how many outcomes and words that is. Raises `InputError`, `TooMany`."""
    if kind == Aside.DAY and not is_day(value):
        raise InputError("value", f"{value[:80]!r} is not a day", "Write it like 2026-01-31, in UTC")
    return learner_of(web).put_aside(Aside(kind), value, identity.user)


def approve_again(web: WebState, identity: Identity, kind: str, value: str) -> None:
    """Let it count again. Raises `NotFound`."""
    if not learner_of(web).approve(Aside(kind), value, identity.user):
        raise NotFound(f"{kind} {value}", "it is not set aside", "See perdure learn for what is")


def confirm_word(web: WebState, identity: Identity, job_id: str, incarnation: int, word: str) -> None:
    """Let a user's word hold for all. Raises `NotFound`, and `ClusterError` where it is another word by now."""
    if not learner_of(web).confirm(AttemptId(web.reader.cluster, job_id, incarnation), word, identity.user):
        what = f"attempt {incarnation} has no correction"
        raise NotFound(f"job {job_id}", what, "See perdure learn for those that do")


def learner_of(web: WebState) -> Learner:
    if web.learner is None:
        raise ClusterError(web.reader.cluster, "this service does not learn", "Start it with perdure up")
    return web.learner
