"""The controller: a pure state machine from what happened to what is to be done.

``step(state, event, settings) -> state, effects``. Time comes with the event. Nothing is read or written here;
whoever runs it journals the effects before carrying them out, so that a crash at any point repeats a step at
worst, and every step is idempotent: ids and keys are made from the attempt that they are about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from perdure.coordination.handlers.shared import newly_needed
from perdure.coordination.messages import (
    ExceptionRaised,
    Failed,
    Settled,
)
from perdure.coordination.record import (
    FATAL,
    Component,
    ExceptionOutcome,
    ExceptionRecord,
    Scope,
    about,
)
from perdure.coordination.ruling import handled
from perdure.model.actions import Comment, Exclude, OutcomeStatus, Preempt, Requeue
from perdure.model.events import ActionEnded, AttemptEnded, AttemptStarted, JobChanged
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, begins_anew
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import GONE, Known, Observation, changes
from perdure.retry.decide import Decision
from perdure.retry.history import Fleet, nodes_by_partition, usable_nodes
from perdure.retry.not_the_node import of_launches, of_set_down
from perdure.retry.one_node import is_of_place, of_one_node, with_end
from perdure.service.core.case import Case, ControllerState, Failure, is_of_another
from perdure.service.core.chain_step import Stepped, acts_on, advance_chain, meant_for
from perdure.service.core.comments import line_of
from perdure.service.core.consequences import LEAVES_IT_TO_A_PERSON, consequences
from perdure.service.core.full_store import full_store
from perdure.service.core.hardware import broken_nodes
from perdure.service.core.messages import (
    PERDURE,
    Act,
    ChainInput,
    Effect,
    Ended,
    Event,
    Journalled,
    Judge,
    Judged,
    Looked,
    Noted,
    Ordered,
    Study,
)
from perdure.service.core.requeue_loop import counted, loop_of
from perdure.service.core.requeue_loop import settled as loops_settled
from perdure.service.core.scope import OUTSIDE
from perdure.service.core.settings import ControllerSettings
from perdure.service.core.view import SiteView
from perdure.service.core.waiting_retry import after_change, after_giving_back, after_too_late, given_back
from perdure.triage.verdict import Verdict


def step(state: ControllerState, event: Event, settings: ControllerSettings) -> Stepped:
    """Take in one event: the new state, and what is to be done about it."""
    match event:
        case Looked():
            return _look(state, event.observation, settings)
        case Judged():
            return _judged(state, event, settings)
        case Ended():
            return _ended(state, event, settings)
        case ChainInput():
            return _told(state, event, settings)
        case Ordered():
            expires_s = event.time_s + (settings.action_ttl_s if event.ttl_s is None else event.ttl_s)
            return state, [Journalled(event), Act(meant_for(event.action, state), event.by, event.reason, expires_s)]


def unfinished(state: ControllerState) -> list[Effect]:
    """What was asked for, but may not have been answered when the service died: ask again."""
    failures = (case.failure for case in state.cases.values())
    return [Judge(failure.attempt) for failure in failures if failure is not None and failure.awaits_verdict]


# -- what was seen


def _look(state: ControllerState, seen: Observation, settings: ControllerSettings) -> Stepped:
    before = state.known
    known, events = changes(before, seen, grace_s=settings.vanish_grace_s)
    state = replace(state, known=known, fleet=fleet_of(known, state.fleet, state.known))
    effects: list[Effect] = []
    for event in events:
        effects.append(Journalled(event))
        match event:
            case JobChanged(job=job) if job.job_id in state.cases and begins_anew(state.cases[job.job_id].job, job):
                state, more = _began_anew(state, job, settings, event.time_s)
                effects += more
            case JobChanged(job=job) if job.job_id in state.cases and _is_forgotten(state, job):
                state, more = _forgotten_retry(state, job, settings, event.time_s)
                effects += more
            case JobChanged(job=job) if job.job_id in state.cases:
                state, more = _job_changed(state, job, settings, event.time_s)
                effects += more
            case AttemptStarted(attempt=attempt) if attempt.id.job_id in state.cases:
                case_ = state.cases[attempt.id.job_id]
                state = state.with_case(
                    replace(case_, latest=max(case_.latest, attempt.id.incarnation)), settings.max_cases
                )
            case AttemptEnded():
                state, more = _attempt_ended(state, event, settings)
                effects += more
            case _:
                pass
    if "controller" not in seen.unseen and seen.only is None:
        state, lifts = _give_back_nodes(state, settings, seen.time_s)
        effects += lifts
    state, more = _hold_newcomers(state, settings, seen.time_s)
    state, settled = _settle_nodes(state, before, seen, settings)
    if loops := list(loops_settled(state.chain, known.jobs)):
        state, ended = advance_chain(state, loops, settings, seen.time_s)
        settled = [*settled, *ended]
    return state, [*effects, *more, *settled]


def _is_forgotten(state: ControllerState, job: Job) -> bool:
    """Whether a job that we put back is not in the queue any more, though it never started and nobody cancelled it."""
    case = state.cases[job.job_id]
    return job.state.is_over and job.job_id not in state.known.jobs and case.job.state.is_waiting and not case.moved_on


def _forgotten_retry(state: ControllerState, job: Job, settings: ControllerSettings, now: float) -> Stepped:
    """The resource manager lost its state, and with it a retry that was promised: only a person can submit it again."""
    case = state.cases[job.job_id]
    state = state.with_case(replace(case, job=job), settings.max_cases)
    record = case.failure.record if case.failure else None
    if (
        record is None
        or record.owning is None
        or not record.owning.action_keys
        or record.outcome is not ExceptionOutcome.OPEN
    ):
        return state, []
    return advance_chain(state.in_chain(record), [Failed(record.owning.action_keys[0], GONE)], settings, now)


def _began_anew(state: ControllerState, job: Job, settings: ControllerSettings, now: float) -> Stepped:
    """Another job has the id now. If it failed before it was seen, that failure is its own, and nothing before it."""
    case = state.cases[job.job_id]
    if case.failure is not None and case.failure.attempt.start_s >= job.submit_s:
        return state.with_case(Case(job, case.latest, failure=case.failure), settings.max_cases), []
    return _story_over(state, job.job_id, settings, now)


def _story_over(state: ControllerState, job_id: str, settings: ControllerSettings, now: float) -> Stepped:
    """Another job has the id now: what was planned for the one before will not happen any more."""
    case = state.cases[job_id]
    state, effects = _withdrawn(state, case, settings, now)
    if case.failure is not None and case.failure.awaits_verdict:
        effects = [_passed_by(case.failure, now, "another job has its id since")]
    return replace(state, cases={other: case for other, case in state.cases.items() if other != job_id}), effects


def _job_changed(state: ControllerState, job: Job, settings: ControllerSettings, now: float) -> Stepped:
    """Of a job that is cancelled while it waits for its retry no attempt's end tells."""
    case = state.cases[job.job_id]
    state = state.with_case(replace(case, job=job), settings.max_cases)
    if case.moved_on or not case.job.state.is_waiting:
        return state, []
    if job.state is JobState.CANCELLED:
        return _withdrawn(state, case, settings, now)
    decision = after_change(case.failure.decision if case.failure else None, case.job, job)
    return _reworded(state, job.job_id, decision, settings, now) if decision else (state, [])


def _reworded(
    state: ControllerState, job_id: str, decision: Decision, settings: ControllerSettings, now: float
) -> Stepped:
    """Write down what a decision says now, also into the job's record."""
    case = state.cases[job_id]
    if case.failure is None:
        return state, []
    failure = replace(case.failure, decision=decision)
    state = state.with_case(replace(case, failure=failure), settings.max_cases)
    line = _line(failure.attempt, decision, case.job, settings)
    comments = (Comment(failure.attempt.id, line),) if settings.mark else ()
    return state, [Noted(failure.record, failure), *acts_on(failure.record, comments, state, settings, now)]


def _line(attempt: Attempt, decision: Decision, job: Job, settings: ControllerSettings) -> str:
    """The line in the job's record about the decision as it stands."""
    return line_of(attempt.id, decision.reason, job.misread, settings.mark, attempt.end_s)


def _give_back_nodes(state: ControllerState, settings: ControllerSettings, now: float) -> Stepped:
    """Give retries that have waited long the nodes back that they were kept off, where no other is in service."""
    effects: list[Effect] = []
    for case in list(state.cases.values()):
        nodes = given_back(case, state.known.nodes, state.fleet, settings.retry.give_back_after_s, now)
        if not nodes or case.failure is None or case.failure.decision is None:
            continue
        decision = after_giving_back(case.failure.decision, nodes)
        failure = replace(case.failure, decision=decision)
        state = state.with_case(replace(case, failure=failure), settings.max_cases)
        line = _line(failure.attempt, decision, case.job, settings) if settings.mark else ""
        lift = Exclude(failure.attempt.id, (), lift=nodes, comment=line)
        effects += [Noted(failure.record, failure), *acts_on(failure.record, (lift,), state, settings, now)]
    return state, effects


def _withdrawn(state: ControllerState, case: Case, settings: ControllerSettings, now: float) -> Stepped:
    """Withdraw the latest failure of a job: nothing more will be done about it."""
    failure = case.failure
    if failure is None or failure.verdict is None or failure.record.outcome is not ExceptionOutcome.OPEN:
        return state, []
    settled = Settled(failure.record.id, ExceptionOutcome.WITHDRAWN)
    return advance_chain(state.in_chain(failure.record), [settled], settings, now)


def _settle_nodes(state: ControllerState, before: Known, seen: Observation, settings: ControllerSettings) -> Stepped:
    """A fault of nodes that waits for a person is dealt with once this look finds that none of them takes new work.

    One that took nodes out is over once they are back, and were so at the look before: by then an order to return them
    has reported who gave it.
    """
    nodes = {node.name: node for node in seen.nodes}
    dealt_with = [
        Settled(record.id, ExceptionOutcome.RECOVERED)
        for record in state.chain.ended.values()
        if record.subject.nodes
        and record.needs_a_person
        and all(name in nodes and not nodes[name].is_usable for name in record.subject.nodes)
    ]
    dealt_with += [
        Settled(record.id, ExceptionOutcome.RECOVERED, "back in service; the resource manager does not tell by whom")
        for record in state.chain.ended.values()
        if record.keeps_nodes_out
        and seen.time_s > (record.read_back_s or 0.0)
        and all(_is_up(name, before.nodes) and _is_up(name, nodes) for name in record.subject.nodes)
    ]
    return advance_chain(state, dealt_with, settings, seen.time_s) if dealt_with else (state, [])


def _is_up(name: str, nodes: Mapping[str, Node]) -> bool:
    return name in nodes and nodes[name].state is NodeState.UP


def _hold_newcomers(state: ControllerState, settings: ControllerSettings, now: float) -> Stepped:
    """Jobs that came, or came back, after what they need went down are held like those that waited then."""
    needed = newly_needed(SiteView(state, settings.playbook, settings.retry, now), now)
    return (
        advance_chain(state, [ExceptionRaised(record, own=True) for record in needed], settings, now)
        if needed
        else (state, [])
    )


def fleet_of(known: Known, fleet: Fleet, before: Known | None = None) -> Fleet:
    """The fleet with what is usable and live; where the nodes are as they were `before`, what is usable is, too."""
    live = sum(not job.state.is_over for job in known.jobs.values())
    fleet = replace(fleet, live_jobs=live, running_jobs=len(known.running))
    if before is not None and known.nodes == before.nodes:
        return fleet
    nodes = known.nodes.values()
    usable, members = (usable_nodes(nodes), nodes_by_partition(nodes)) if nodes else ({}, {})
    reserved = frozenset(node.name for node in known.nodes.values() if node.is_reserved)
    set_down = frozenset(node.name for node in known.nodes.values() if node.is_set_down)
    return replace(fleet, usable=usable, members=members, reserved=reserved, set_down=set_down)


def _attempt_ended(state: ControllerState, event: AttemptEnded, settings: ControllerSettings) -> Stepped:
    attempt, job_id = event.attempt, event.attempt.id.job_id
    old = state.cases.get(job_id)
    if event.job is not None and is_of_another(attempt, event.job):
        return state, []  # the resource manager lost its state, and gave the id to another's job
    over: list[Effect] = []
    if old is not None and old.is_of_another(attempt, event.job):
        state, over = _story_over(state, job_id, settings, event.time_s)
        old = None  # the resource manager lost its state, and gave the id to another's job
    if not attempt.state.is_failure:
        if attempt.state is AttemptState.COMPLETED:
            state = replace(state, ends=with_end(state.ends, event.job, attempt, "", event.time_s))
        state, effects = _settle(state, old, attempt, settings, event.time_s)
        state, looping = _count_put_back(state, event, settings)
        return state, [*over, *effects, *looping, *_worth_study(event, old, settings)]
    if attempt.end_s is not None and attempt.end_s < settings.ignore_before_s:
        return _counted(state, old, event, settings), over
    if old is not None and old.knows(attempt):
        return state, []
    job = event.job or _forgotten(attempt, old)
    failure = Failure(attempt, _raised(attempt, event.time_s))
    if old is not None and old.failure is not None and old.failure.attempt.id.incarnation > attempt.id.incarnation:
        return state, [_passed_by(failure, event.time_s)]
    if attempt.state is AttemptState.LOST and _went_on(state.known, attempt, event.job):
        return state, [
            *over,
            _passed_by(failure, event.time_s, "its start was forgotten, and the job has gone on since"),
        ]
    runs = (other.incarnation for other in state.known.running if other.job_id == job_id)  # its end was told late
    latest = max(old.latest if old else 0, attempt.id.incarnation, *runs)
    overtaken = old.failure if old and old.failure and old.failure.awaits_verdict else None
    passed = [_passed_by(overtaken, event.time_s)] if overtaken else []
    state, again = _failed_again(state, old, settings, event.time_s)
    old = state.cases.get(job_id) if old else None
    case = replace(old.closed(), job=job, latest=latest) if old else Case(job, latest)
    state = state.with_case(replace(case, failure=failure), settings.max_cases)
    return state, [*over, *passed, *again, Noted(failure.record, failure), Judge(attempt)]


def _count_put_back(state: ControllerState, event: AttemptEnded, settings: ControllerSettings) -> Stepped:
    """Tell a person of a job that others put back more often than Perdure itself would."""
    attempt = event.attempt
    if attempt.id in state.preempted:
        return replace(state, preempted=state.preempted - {attempt.id}), []
    if attempt.state is not AttemptState.REQUEUED:
        return state, []
    put_back = counted(state.put_back, event.job, attempt, settings.max_cases)
    state = replace(state, put_back=put_back)
    limit = settings.retry.max_infrastructure_retries
    loop = loop_of(attempt, put_back.get(attempt.id.job_id), limit, PERDURE, event.time_s)
    return advance_chain(state, [ExceptionRaised(loop, own=True)], settings, event.time_s) if loop else (state, [])


def _failed_again(state: ControllerState, case: Case | None, settings: ControllerSettings, now: float) -> Stepped:
    """End the story of the latest failure: its job was put back, and fails once more."""
    record = case.failure.record if case and case.failure else None
    if record is None or not record.state.is_over or record.outcome is not ExceptionOutcome.OPEN:
        return state, []
    return advance_chain(state.in_chain(record), [Settled(record.id, ExceptionOutcome.FAILED_AGAIN)], settings, now)


def _counted(
    state: ControllerState, case: Case | None, event: AttemptEnded, settings: ControllerSettings
) -> ControllerState:
    """Remember of a failure from before we came that it was a try, where its job goes on."""
    job, attempt = event.job, event.attempt
    if job is None or job.state.is_over or attempt.state is AttemptState.PREEMPTED:
        return state
    case = case or Case(job, attempt.id.incarnation)
    latest = max(case.latest, attempt.id.incarnation)
    return state.with_case(replace(case, latest=latest, before_us=case.before_us + 1), settings.max_cases)


def _went_on(known: Known, attempt: Attempt, job: Job | None) -> bool:
    """Whether a job has started again since an attempt, or is over though its resource manager knows it still."""
    later = (i for i in (*known.running, *known.ended) if i.job_id == attempt.id.job_id)
    return any(i.incarnation > attempt.id.incarnation for i in later) or (job is not None and job.state.is_over)


def _passed_by(failure: Failure, now: float, why: str = "a newer attempt ran before it was judged") -> Noted:
    """The end of a failure that nobody had judged when a newer attempt of its job had failed already."""
    answer = handled(why).answer(Component.RESOURCE_MANAGER, now)
    return Noted(failure.record.with_answer(answer), failure)


def _settle(
    state: ControllerState, case: Case | None, attempt: Attempt, settings: ControllerSettings, now: float
) -> Stepped:
    """An attempt ended without failing: whatever went wrong with its job before is settled by that."""
    if case is None or case.failure is None or attempt.id.incarnation < case.latest:
        return state, []
    good = attempt.state is AttemptState.COMPLETED
    if attempt.state is AttemptState.REQUEUED:  # somebody put it back by hand: the case goes on
        return state, []
    record, outcome = case.failure.record, ExceptionOutcome.RECOVERED if good else ExceptionOutcome.WITHDRAWN
    state = state.in_chain(record)
    if record.id in state.chain.open or record.id in state.chain.ended:
        state, effects = advance_chain(state, [Settled(record.id, outcome)], settings, now)
    else:  # not judged yet
        failure = replace(case.failure, record=replace(record, outcome=outcome))
        effects = [Noted(failure.record, failure)]
    cases = {job_id: other for job_id, other in state.cases.items() if job_id != attempt.id.job_id}
    return replace(state, cases=cases), effects


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
        f"{attempt.id}:{kind}",
        kind,
        FATAL,
        Scope.LOCAL,
        about(attempt.id),
        now,
        attempt.reason,
        attempt.id.incarnation,
        detected_by=PERDURE,
    )


def _forgotten(attempt: Attempt, case: Case | None) -> Job:
    """A job that only accounting still knows: it is over, whatever it was when it was last seen."""
    if case is not None:
        return replace(case.job, state=JobState.FAILED)
    return Job(attempt.id.cluster, attempt.id.job_id, "", attempt.user, JobState.FAILED, attempt.start_s)


# -- what was judged


def _judged(state: ControllerState, event: Judged, settings: ControllerSettings) -> Stepped:
    case = state.cases.get(event.attempt.job_id)
    failure = case.failure if case else None
    if case is None or failure is None or failure.attempt.id != event.attempt or not failure.awaits_verdict:
        return state, [Journalled(event)]  # an older attempt, or judged before: known, and nothing to do
    verdict = of_set_down(event.verdict, failure.attempt, state.known.nodes)
    verdict = of_one_node(verdict, case.job, failure.attempt, state.ends, event.time_s)
    verdict = of_launches(verdict, failure.attempt, case.past)
    if is_of_place(verdict):
        state = replace(state, ends=with_end(state.ends, case.job, failure.attempt, verdict.category, event.time_s))
    event = replace(event, verdict=verdict)
    record = replace(failure.record, type=_typed(failure, event.verdict))
    attempt = replace(failure.attempt, resubmits=event.verdict.resubmits)
    failure = replace(failure, attempt=attempt, record=record, verdict=event.verdict)
    state = state.with_case(replace(case, failure=failure), settings.max_cases)
    state, effects = advance_chain(state, [ExceptionRaised(record, own=True)], settings, event.time_s)
    raised = [ExceptionRaised(record, own=True) for record in _of_the_site(state, failure, settings, event.time_s)]
    state, more = advance_chain(state, raised, settings, event.time_s) if raised else (state, [])
    return state, [Journalled(event), *effects, *more]


def _of_the_site(
    state: ControllerState, failure: Failure, settings: ControllerSettings, now: float
) -> Iterator[ExceptionRecord]:
    """What a failure shows of the site: nodes that logs of two users show broken, and a full file system."""
    attempt, verdict = failure.attempt, failure.verdict
    if verdict is not None and verdict.hardware:
        yield from broken_nodes(state.fleet, state.chain, state.cluster, attempt, PERDURE, now)
    if verdict is not None and verdict.full_store:
        yield from full_store(settings.playbook, state.chain, attempt.id, verdict.full_store, PERDURE, now)


def _typed(failure: Failure, verdict: Verdict) -> str:
    is_node = failure.record.type.startswith("node.")
    return failure.record.type if is_node else f"job.{verdict.category}"


# -- the chain


def _told(state: ControllerState, event: ChainInput, settings: ControllerSettings) -> Stepped:
    return advance_chain(state, event.inputs, settings, event.time_s)


# -- how actions ended


def _ended(state: ControllerState, event: Ended, settings: ControllerSettings) -> Stepped:
    effects: list[Effect] = [Journalled(end) for end in event.ends]
    for end in event.ends:
        if end.attempt is not None and end.action.is_a(Preempt) and end.status == OutcomeStatus.DONE.value:
            state = replace(state, preempted=state.preempted | {end.attempt})
        if end.attempt is not None and end.action.is_a(Requeue) and end.detail.startswith(OUTSIDE):
            state = replace(state, fleet=state.fleet.without_spent(end.attempt.job_id))
        state, reworded = _not_excluded(state, end, settings)
        effects += reworded
    inputs = [given for end in event.ends for given in consequences(end, event.held, state.chain)]
    if not inputs:
        return state, effects
    for end in event.ends:
        case = state.cases.get(end.attempt.job_id) if end.attempt else None
        if case is not None and case.failure is not None and end.status in LEAVES_IT_TO_A_PERSON:
            state = state.in_chain(case.failure.record)
    state, more = advance_chain(state, inputs, settings, max(end.time_s for end in event.ends))
    return state, [*effects, *more]


def _not_excluded(state: ControllerState, end: ActionEnded, settings: ControllerSettings) -> Stepped:
    """Say so of a job that had started again before it was kept off nodes, as the decision has it."""
    case = state.cases.get(end.attempt.job_id) if end.attempt else None
    failure = case.failure if case else None
    if not end.action.is_a(Exclude) or end.status != OutcomeStatus.SUPERSEDED.value or failure is None:
        return state, []
    if failure.attempt.id != end.attempt or failure.decision is None or not failure.decision.exclude:
        return state, []
    return _reworded(state, end.attempt.job_id, after_too_late(failure.decision), settings, end.time_s)
