"""One step of the controller through the chain: exceptions move on, and the cases that they are about follow."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from perdure.coordination.chain import advance
from perdure.coordination.handler_set import PlaybookHandlers
from perdure.coordination.messages import Changed, Input, Refused, TurnBegun
from perdure.coordination.record import ExceptionRecord
from perdure.model.actions import Action, NodeAction, Requeue
from perdure.model.jobs import Attempt, Job
from perdure.retry.decide import is_free
from perdure.retry.history import Spent, blamed
from perdure.service.core.case import ControllerState, Failure
from perdure.service.core.comments import commented, line_of
from perdure.service.core.messages import PERDURE, Act, Effect, ExceptionChanged, HandlerAsked, Journalled, Noted
from perdure.service.core.settings import ControllerSettings
from perdure.service.core.view import SiteView
from perdure.triage.verdict import Verdict

Stepped = tuple[ControllerState, list[Effect]]
"""What a step comes to: the new state, and what is to be done."""


def advance_chain(state: ControllerState, inputs: Iterable[Input], settings: ControllerSettings, now: float) -> Stepped:
    """Move exceptions along the chain, and update the cases that they are about."""
    view = SiteView(state, settings.playbook, settings.retry, now)
    chain, outcomes = advance(state.chain, inputs, PlaybookHandlers(settings.playbook, view, now), now)
    if chain is not state.chain:
        state = replace(state, chain=chain)
    effects: list[Effect] = []
    for outcome in outcomes:
        match outcome:
            case Changed(record=record, actions=actions):
                effects.append(Journalled(ExceptionChanged(now, record)))
                failure = state.failure_of(record)
                if failure is not None and settings.mark:
                    actions = _commented(record, failure, state.cases[record.subject.job_id].job, actions, settings)
                if actions:
                    effects += acts_on(record, actions, state, settings, now)
                if failure is not None:
                    state, noted = _noted(state, record, failure, actions, view, settings)
                    effects.append(noted)
            case TurnBegun(record=record, handler=handler, until_s=until_s):
                registration = chain.handlers.get(handler)
                name = registration.name if registration else handler
                effects.append(Journalled(HandlerAsked(now, record, name, until_s, handler)))
            case Refused():
                effects.append(outcome)
    return state, effects


def acts_on(
    record: ExceptionRecord,
    actions: tuple[Action, ...],
    state: ControllerState,
    settings: ControllerSettings,
    now: float,
) -> list[Act]:
    """The orders that carry out an exception's actions; after their time they are not carried out any more."""
    note = record.owning.note if record.owning else ""
    meant = (meant_for(action, state) for action in actions)
    return [Act(action, PERDURE, note, now + settings.action_ttl_s, record.id) for action in meant]


def meant_for(action: Action, state: ControllerState) -> Action:
    """The action with whose job it is meant for: see `OnJob.user`."""
    if isinstance(action, NodeAction) or action.user:
        return action
    case, job = state.cases.get(action.attempt.job_id), state.known.jobs.get(action.attempt.job_id)
    job = job or (case.job if case else None)
    user = state.user_of(action.attempt) or (job.user if job else "")
    return replace(action, user=user) if user else action


def _commented(
    record: ExceptionRecord, failure: Failure, job: Job, actions: tuple[Action, ...], settings: ControllerSettings
) -> tuple[Action, ...]:
    """The actions, and a line in the job's record where a decision has just been made."""
    if record.owning is None or failure.record.owner is not None:
        return actions
    attempt = failure.attempt
    line = line_of(attempt.id, record.owning.note, job.misread, settings.mark, attempt.end_s)
    return commented(actions, attempt.id, line)


def _noted(
    state: ControllerState,
    record: ExceptionRecord,
    failure: Failure,
    actions: tuple[Action, ...],
    view: SiteView,
    settings: ControllerSettings,
) -> tuple[ControllerState, Noted]:
    """Write a failure's changed record down with what was decided on it."""
    case = state.cases[record.subject.job_id]
    was_open, verdict, decision = failure.record.owner is None, failure.verdict, failure.decision
    if verdict is not None and was_open:
        decision = view.decision(record)
        if (owning := record.owning) is not None:
            decision = replace(decision, reason=owning.note)
            is_charged = any(isinstance(a, Requeue) for a in actions) and not is_free(case.job, failure.attempt)
            starts_s = view.now + decision.delay_s if is_charged else None
            state = _remember(state, case.job, failure.attempt, verdict, starts_s, settings, view.now)
    failure = replace(failure, record=record, decision=decision)
    state = state.with_case(replace(case, failure=failure), settings.max_cases)
    return state, Noted(record, failure)


def _remember(
    state: ControllerState,
    job: Job,
    attempt: Attempt,
    verdict: Verdict,
    starts_s: float | None,
    settings: ControllerSettings,
    now: float,
) -> ControllerState:
    """Charge the nodes, and the budgets with a retry of ours that `starts_s`; None where it costs none."""
    fleet = blamed(state.fleet, job, attempt, verdict, settings.retry.node_memory_s, now)
    if starts_s is not None:
        fleet = fleet.with_spent(Spent(starts_s, job.job_id, job.user, attempt.nodes), now)
    return replace(state, fleet=fleet)
