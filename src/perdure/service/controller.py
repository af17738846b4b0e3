"""The controller: a pure state machine from what happened to what is to be done.

``step(state, event, settings) -> state, effects``. Time comes with the event. Nothing is read or written here;
whoever runs it journals the effects before carrying them out, so that a crash at any point repeats a step at
worst, and every step is idempotent: ids and keys are made from the attempt that they are about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from perdure.coordination.chain import Handler, declined, offer
from perdure.coordination.record import (
    FATAL,
    Answer,
    AnswerKind,
    Component,
    ExceptionRecord,
    ExceptionState,
    Outcome,
    Scope,
    about,
)
from perdure.model.actions import Action, Cancel, Drain, Exclude, Hold, OutcomeStatus, Release, Requeue, Undrain
from perdure.model.events import ActionEnded, AttemptEnded, AttemptStarted, ClusterEvent, JobChanged
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.observation import Observation, changes
from perdure.retry.decide import Decision, DecisionKind, decide
from perdure.retry.history import PastFailure, Spent, blamed, usable_nodes
from perdure.retry.rules import RetryRules
from perdure.service.case import MAX_PAST, Case, Failure, State
from perdure.triage.verdict import Verdict

Recovery = tuple[Component, tuple[Action, ...], str]  # who, by which actions, in which words
PERDURE = "perdure"  # who asks, where no person does


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller's decisions depend on."""

    retry: RetryRules = field(default_factory=RetryRules)
    action_ttl_s: float = 15 * 60.0
    """An action that was not begun this long after it was decided is not begun at all."""
    vanish_grace_s: float = 30.0
    """How long an attempt may be missing from what the resource manager says before it counts as ended."""
    ignore_before_s: float = 0.0
    """Attempts that ended before this instant are written down, and that is all: they are none of our business."""
    max_cases: int = 5000
    """Jobs with failures that are remembered; beyond it the oldest that are settled are forgotten."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The cluster was looked at."""

    observation: Observation
    kind: Literal["looked"] = "looked"


@dataclass(frozen=True, slots=True)
class Judged:
    """Triage has a verdict on a failed attempt."""

    time_s: float
    attempt: AttemptId
    verdict: Verdict
    kind: Literal["judged"] = "judged"

    @property
    def key(self) -> str:
        return f"judged:{self.attempt}"


@dataclass(frozen=True, slots=True)
class Ordered:
    """A person asked for an action."""

    time_s: float
    action: Action
    by: str
    reason: str
    kind: Literal["ordered"] = "ordered"

    @property
    def key(self) -> str:
        return f"ordered:{self.action.key}:{self.time_s:.3f}"


Event = Looked | Judged | ActionEnded | Ordered


@dataclass(frozen=True, slots=True)
class Journalled:
    """A fact to be written down. Cluster events also update what is shown of jobs, attempts and nodes."""

    event: ClusterEvent | Judged | ActionEnded | Ordered


@dataclass(frozen=True, slots=True)
class Judge:
    """Read the log of this attempt and judge it; the answer comes back as `Judged`."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Study:
    """Read the log of this attempt, which went well, to compare failures of the same job with it. No answer comes."""

    attempt: Attempt
    job: Job


@dataclass(frozen=True, slots=True)
class Act:
    """An action to be journalled as an intent, then carried out unless it has expired."""

    action: Action
    by: str
    reason: str
    expires_s: float
    exception_id: str = ""


@dataclass(frozen=True, slots=True)
class Noted:
    """The standing of an exception, to be written over what was written of it before."""

    failure: Failure
    saved_gpu_h: float = 0.0


Effect = Journalled | Judge | Study | Act | Noted


def step(state: State, event: Event, settings: ControllerSettings) -> tuple[State, list[Effect]]:
    """Take in one event: the new state, and what is to be done about it."""
    match event:
        case Looked():
            return _look(state, event.observation, settings)
        case Judged():
            return _judged(state, event, settings)
        case ActionEnded():
            return _action_ended(state, event)
        case Ordered():
            expires_s = event.time_s + settings.action_ttl_s
            return state, [Journalled(event), Act(event.action, event.by, event.reason, expires_s)]


def unfinished(state: State) -> list[Effect]:
    """What was asked for, but may not have been answered when the service died: ask again."""
    failures = (case.failure for case in state.cases.values())
    return [Judge(failure.attempt) for failure in failures if failure is not None and failure.awaits_verdict]


# -- what was seen


def _look(state: State, seen: Observation, settings: ControllerSettings) -> tuple[State, list[Effect]]:
    known, events = changes(state.known, seen, grace_s=settings.vanish_grace_s)
    live = sum(not job.state.is_over for job in known.jobs.values())
    fleet = replace(state.fleet, usable=usable_nodes(known.nodes.values()), live_jobs=live)
    state = replace(state, known=known, fleet=fleet)
    effects: list[Effect] = []
    for event in events:
        effects.append(Journalled(event))
        match event:
            case JobChanged(job=job) if job.job_id in state.cases:
                state = _with_case(state, replace(state.cases[job.job_id], job=job), settings)
            case AttemptStarted(attempt=attempt) if attempt.id.job_id in state.cases:
                case_ = state.cases[attempt.id.job_id]
                state = _with_case(state, replace(case_, latest=max(case_.latest, attempt.id.incarnation)), settings)
            case AttemptEnded():
                state, more = _attempt_ended(state, event, settings)
                effects += more
            case _:
                pass
    return state, effects


def _attempt_ended(state: State, event: AttemptEnded, settings: ControllerSettings) -> tuple[State, list[Effect]]:
    attempt, job_id = event.attempt, event.attempt.id.job_id
    old = state.cases.get(job_id)
    if not attempt.state.is_failure:
        state, effects = _settle(state, old, attempt)
        return state, [*effects, *_worth_study(event, old, settings)]
    if attempt.end_s is not None and attempt.end_s < settings.ignore_before_s:
        return state, []
    job = event.job or (old.job if old else _forgotten(attempt))
    if old is None:
        case = Case(job, attempt.id.incarnation)
    else:
        case = replace(_closed(old), job=job, latest=max(old.latest, attempt.id.incarnation))
    failure = Failure(attempt, _raised(attempt, event.time_s))
    state = _with_case(state, replace(case, failure=failure), settings)
    return state, [Noted(failure), Judge(attempt)]


def _settle(state: State, case: Case | None, attempt: Attempt) -> tuple[State, list[Effect]]:
    """An attempt ended without failing: whatever went wrong with its job before is settled by that."""
    if case is None or case.failure is None or attempt.id.incarnation < case.latest:
        return state, []
    good = attempt.state is AttemptState.COMPLETED
    if attempt.state is AttemptState.REQUEUED:  # somebody put it back by hand: the case goes on
        return state, []
    settled = Outcome.RECOVERED if good else Outcome.WITHDRAWN
    failure = replace(case.failure, record=replace(case.failure.record, outcome=settled))
    cases = {job_id: other for job_id, other in state.cases.items() if job_id != attempt.id.job_id}
    return replace(state, cases=cases), [Noted(failure)]


def _worth_study(event: AttemptEnded, case: Case | None, settings: ControllerSettings) -> list[Effect]:
    """What went well from the start: the log of a job that failed before may hold the failure, too."""
    attempt, job = event.attempt, event.job
    if attempt.state is not AttemptState.COMPLETED or job is None or case is not None or job.restarts:
        return []
    if attempt.end_s is not None and attempt.end_s < settings.ignore_before_s:
        return []
    return [Study(attempt, job)]


def _raised(attempt: Attempt, now: float) -> ExceptionRecord:
    is_node = attempt.state in (AttemptState.NODE_FAIL, AttemptState.BOOT_FAIL)
    kind = "node.failure" if is_node else f"job.{attempt.state}"
    return ExceptionRecord(
        f"{attempt.id}:{kind}", kind, FATAL, Scope.LOCAL, about(attempt.id), now, attempt.reason, attempt.id.incarnation
    )


def _forgotten(attempt: Attempt) -> Job:
    """A stand-in for a job that only accounting still knows."""
    return Job(attempt.id.cluster, attempt.id.job_id, "", attempt.user, JobState.FAILED, attempt.start_s)


def _closed(case: Case) -> Case:
    """Move the latest failure into the past."""
    failure = case.failure
    if failure is None or failure.verdict is None:
        return replace(case, failure=None)
    verdict, decision = failure.verdict, failure.decision
    past = PastFailure(
        failure.attempt.id,
        failure.record.time_s,
        failure.attempt.nodes,
        verdict.label,
        verdict.category,
        verdict.fingerprint,
        verdict.infrastructure and not verdict.hearsay,
        failure.attempt.elapsed_s,
        retried=decision is None or decision.retries or failure.record.owner is not Component.SCHEDULER,
    )
    return replace(case, failure=None, past=(*case.past, past)[-MAX_PAST:])


def _with_case(state: State, case: Case, settings: ControllerSettings) -> State:
    cases = {**state.cases, case.job.job_id: case}
    if len(cases) > settings.max_cases:
        del cases[min(cases, key=lambda job_id: _keeping_rank(cases[job_id]))]
    return replace(state, cases=cases)


def _keeping_rank(case: Case) -> tuple[bool, float]:
    """What is let go first: the oldest of those that are settled; those that await a verdict only then."""
    failure = case.failure
    return (failure is not None and failure.awaits_verdict, failure.record.time_s if failure else 0.0)


# -- what was judged


def _judged(state: State, event: Judged, settings: ControllerSettings) -> tuple[State, list[Effect]]:
    case = state.cases.get(event.attempt.job_id)
    failure = case.failure if case else None
    if case is None or failure is None or failure.attempt.id != event.attempt or not failure.awaits_verdict:
        return state, [Journalled(event)]  # an older attempt, or judged before: known, and nothing to do
    now, verdict, attempt = event.time_s, event.verdict, failure.attempt
    decision = decide(case.job, attempt, verdict, case.past, state.fleet, settings.retry, now)
    owner, actions, note = _recovery(case, attempt, decision)
    record = _owned(replace(failure.record, type=_typed(failure, verdict)), owner, actions, note, now)
    if not decision.retries and owner is Component.SCHEDULER:
        record = replace(record, outcome=Outcome.STOPPED)
    failure = replace(failure, record=record, verdict=verdict, decision=replace(decision, reason=note))
    state = _with_case(state, replace(case, failure=failure), settings)
    state = _remember(state, case.job, attempt, verdict, decision.retries and bool(actions), settings, now)
    saved = attempt.gpu_hours if decision.kind is DecisionKind.STOP else 0.0
    expires_s = now + settings.action_ttl_s
    acts = [Act(action, PERDURE, note, expires_s, record.id) for action in actions]
    return state, [Journalled(event), Noted(failure, saved), *acts]


def _typed(failure: Failure, verdict: Verdict) -> str:
    prefix = failure.record.type.split(".", 1)[0]
    return failure.record.type if prefix == "node" else f"job.{verdict.category}"


def _recovery(case: Case, attempt: Attempt, decision: Decision) -> Recovery:
    """Who recovers, by which actions, in which words.

    A resource manager that has put the job back has recovered it: that is never doubled. What is left to us is
    to keep the new attempt off the node that failed, and to hold a job that can only fail again.
    """
    job = case.job
    if case.moved_on:
        return Component.RESOURCE_MANAGER, (), "a newer attempt runs already"
    if job.state is JobState.PENDING or _held_by_its_manager(job):
        return _amend(job, attempt, decision)
    if job.state is JobState.HELD:
        return Component.JOB, (), f"a person holds the job; {decision.reason}"
    if not decision.retries:
        return Component.SCHEDULER, (), decision.reason
    requeue = Requeue(attempt.id, decision.exclude, decision.delay_s)
    return Component.SCHEDULER, (requeue,), decision.reason


def _amend(job: Job, attempt: Attempt, decision: Decision) -> Recovery:
    """The job waits again by its manager's own requeue."""
    held = job.state is JobState.HELD
    if not decision.retries:
        if held or not job.may_requeue or job.wish is not job.wish.AUTO:
            return Component.RESOURCE_MANAGER, (), f"requeued by the resource manager; {decision.reason}"
        why = f"held, though the resource manager requeued it: {decision.reason}"
        return Component.SCHEDULER, (Hold(attempt.id),), why
    exclude = tuple(n for n in decision.exclude if n not in job.excluded)
    actions: list[Action] = [Exclude(attempt.id, exclude)] if exclude else []
    if held:
        return Component.SCHEDULER, (*actions, Release(attempt.id)), f"released after {job.reason}: {decision.reason}"
    where = f", kept off {', '.join(exclude)}" if exclude else ""
    return Component.RESOURCE_MANAGER, tuple(actions), f"requeued by the resource manager{where}; {decision.reason}"


def _held_by_its_manager(job: Job) -> bool:
    """True where no person but the resource manager's own giving up holds the job."""
    reason = job.reason.lower()
    return job.state is JobState.HELD and ("launch failed" in reason or "maxrequeue" in reason)


def _owned(
    record: ExceptionRecord, owner: Component, actions: Iterable[Action], note: str, now: float
) -> ExceptionRecord:
    """Offer the exception along the chain; whoever is not the owner declines."""
    keys = tuple(action.key for action in actions)

    def handler(component: Component) -> Handler:
        if component is owner:
            return lambda _: Answer(component, AnswerKind.HANDLED, now, note, keys)
        return lambda _: declined(component, now, "no recovery seen")

    return offer(record, {component: handler(component) for component in Component})


def _remember(
    state: State, job: Job, attempt: Attempt, verdict: Verdict, granted: bool, settings: ControllerSettings, now: float
) -> State:
    """Charge the nodes and the budgets."""
    fleet = blamed(state.fleet, job, attempt, verdict, settings.retry.node_memory_s, now)
    if granted:
        fleet = fleet.with_spent(Spent(now, job.job_id, job.user, attempt.nodes))
    return replace(state, fleet=fleet)


# -- what came of it

_LEAVES_IT_TO_A_PERSON = (OutcomeStatus.REFUSED.value, "expired")


def _action_ended(state: State, event: ActionEnded) -> tuple[State, list[Effect]]:
    effects: list[Effect] = [Journalled(event)]
    case = state.cases.get(event.attempt.job_id) if event.attempt else None
    failure = case.failure if case else None
    owned = failure is not None and any(event.action_key in a.action_keys for a in failure.record.verdicts)
    if case is None or failure is None or not owned or event.status not in _LEAVES_IT_TO_A_PERSON:
        return state, effects
    answer = Answer(Component.SCHEDULER, AnswerKind.ANNOTATED, event.time_s, f"{event.status}: {event.detail}")
    record = replace(failure.record.with_answer(answer), state=ExceptionState.ESCALATED)
    failure = replace(failure, record=record)
    cases = {**state.cases, case.job.job_id: replace(case, failure=failure)}
    return replace(state, cases=cases), [*effects, Noted(failure)]


def undo_of(action: Action) -> Action | None:
    """The action that takes `action` back, or None where nothing can."""
    match action:
        case Requeue(attempt=attempt):
            return Cancel(attempt)
        case Hold(attempt=attempt):
            return Release(attempt)
        case Release(attempt=attempt):
            return Hold(attempt)
        case Drain(node=node, episode=episode):
            return Undrain(node, f"undo of {episode}")
        case _:
            return None
