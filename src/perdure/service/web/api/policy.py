"""The scheduling policy in force: what it decided last, and its switch."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from msgspec import to_builtins
from pydantic import BaseModel, ConfigDict, Field

from perdure.errors import ClusterError
from perdure.live_policy.decide import LiveDecision
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.web.state import Here, Operator, Viewer, WebState

router = APIRouter(tags=["policy"])


class OrderedJobItem(BaseModel):
    """A waiting job that takes part. Places count from 1; `place_seen` is the resource manager's own."""

    job: str
    user: str
    gpus: int
    attained_s: float = Field(description="Seconds that it has run before")
    place: int
    place_seen: int
    priority: int
    wanted_priority: int
    may_be_preempted: bool
    starts: bool = Field(description="It would start now, could the policy give out the GPUs itself")


class PolicyPreemptionItem(BaseModel):
    """A running job that makes room for another one, and why."""

    job: str
    starts: str
    why: str


class PolicyItem(BaseModel):
    """The policy and its last decision; `decided_s` is null before the first. In shadow mode nothing of it is done."""

    name: str
    state: Literal["none", "off", "shadow", "acting"]
    decided_s: float | None = None
    took_s: float = Field(default=0.0, description="Seconds that the last decision took")
    trouble: str = Field(default="", description="Why the last turn failed")
    order: list[OrderedJobItem] = []
    changes: int = Field(default=0, description="Jobs whose place is changed by this decision")
    preemptions: list[PolicyPreemptionItem] = []
    running_on: dict[str, str] = Field(default={}, description="Jobs that do not make room, and why")
    left_alone: dict[str, str] = Field(default={}, description="Jobs that opted in and are left alone, and why")
    remarks: list[str] = []
    sizes: dict[str, int] = Field(default={}, description="GPUs that waiting jobs of several sizes are given, by job")
    term: PolicyTermItem | None = Field(default=None, description="null where no policy was in force yet")


class PolicyPromiseItem(BaseModel):
    """What a what-if of this site's history promised when the policy was put in force; means, in seconds.

    `own_wait_s` and `own_jct_s` are those of the resource manager's own way.
    """

    comparison: str
    asked_s: float
    jobs: int
    wait_s: float
    jct_s: float
    own_wait_s: float
    own_jct_s: float


class MeasuredMeanItem(BaseModel):
    """A mean in seconds, and the ends of its interval at 95 %; these are null where the jobs are too few."""

    mean: float
    low: float | None
    high: float | None


class PolicyTermItem(BaseModel):
    """The latest time in which a policy was in force; `until_s` is null while it is.

    Of the jobs that came since then and took part, `over` have ended: the means are theirs.
    """

    policy: str
    since_s: float
    until_s: float | None
    promised: PolicyPromiseItem | None = Field(description="null where nothing was replayed before")
    came: int
    over: int
    enough: bool = Field(description="Enough jobs are over for an interval")
    wait_s: MeasuredMeanItem | None
    jct_s: MeasuredMeanItem | None


class PolicySwitchOrder(BaseModel):
    """On: the policy decides again. Off: it does nothing, and jobs get the places back that they had without it."""

    model_config = ConfigDict(extra="forbid")

    on: bool


@router.get("/policy")
def get_policy(web: Here, identity: Viewer) -> PolicyItem:  # noqa: ARG001
    """What the policy in force decided last."""
    return standing_of(web.policy)


@router.post("/policy")
def switch_policy(web: Here, identity: Operator, order: PolicySwitchOrder) -> PolicyItem:
    """Turn the policy on or off."""
    turn(web, on=order.on, by=identity.user)
    return standing_of(web.policy)


def turn(web: WebState, *, on: bool, by: str) -> None:
    """Raises `ClusterError` where the service has no policy, `StateError` where the switch is not turned."""
    if web.policy is None:
        raise ClusterError("policy", "this service has none", "Start it with perdure up --policy NAME")
    web.policy.switch.turn(on=on, by=by)


def standing_of(worker: PolicyWorker | None) -> PolicyItem:
    """The policy as it stands."""
    if worker is None or not worker.settings.name:
        return PolicyItem(name="", state="none")
    term = _term_of(worker)
    state: Literal["off", "shadow", "acting"] = "acting" if worker.is_acting else "shadow" if worker.is_on else "off"
    found = worker.latest if worker.is_on else None
    if found is None:
        return PolicyItem(name=worker.settings.name, state=state, trouble=worker.trouble, term=term)
    standing = PolicyItem(name=found.policy, state=state, trouble=worker.trouble, took_s=worker.took_s, term=term)
    return _decided(standing, found)


def _term_of(worker: PolicyWorker) -> PolicyTermItem | None:
    found = worker.outcome()
    if found is None:
        return None
    term, came = found
    told = {**to_builtins(came), "enough": came.is_enough, "promised": to_builtins(term.promise)}
    return PolicyTermItem(policy=term.policy, since_s=term.since_s, until_s=term.until_s, **told)


def _told(found: LiveDecision) -> list[tuple[str, str, str]]:
    return [(each.job_id, each.starts, each.why) for each in found.preemptions]


def _decided(item: PolicyItem, found: LiveDecision) -> PolicyItem:
    order = [
        OrderedJobItem(
            job=job.job_id, user=job.user, gpus=job.gpus, attained_s=job.attained_s, place=job.place,
            place_seen=job.place_seen, priority=job.priority, wanted_priority=job.wanted,
            may_be_preempted=job.consent == "preempt", starts=job.starts,
        )
        for job in found.order
    ]  # fmt: skip
    preemptions = [PolicyPreemptionItem(job=job, starts=starts, why=why) for job, starts, why in _told(found)]
    told = {
        "decided_s": found.now_s, "order": order, "changes": len(found.changes), "preemptions": preemptions,
        "running_on": dict(found.kept), "left_alone": dict(found.left), "remarks": list(found.remarks),
        "sizes": {each.job_id: each.size.gpus for each in found.sizes},
    }  # fmt: skip
    return item.model_copy(update=told)
