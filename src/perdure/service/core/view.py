"""The controller's state as the handlers of exceptions see it (`coordination.site.Site`). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain as chained

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.coordination.chain_state import Chain
from perdure.coordination.playbook import Playbook
from perdure.coordination.record import AnswerKind, Component, ExceptionOutcome, ExceptionRecord, Scope
from perdure.coordination.ruling import Ruling
from perdure.coordination.site import Resource
from perdure.model.actions import Requeue
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState, came_after
from perdure.model.nodes import Node
from perdure.retry.decide import Decision, DecisionKind, decide, is_free
from perdure.retry.history import Fleet, Spent
from perdure.retry.rules import RetryRules
from perdure.service.core.case import Case, ControllerState, Failure
from perdure.service.core.recovery import recovery_of
from perdure.service.core.successor import successor_of

REQUEUE = "requeue"  # what an owner may forbid all others
STILL_NEEDS = "held still: the job needs"  # how the end of a release begins that was not carried out for that
PARKED_S = 120.0  # a job put back while what it needs is down starts no sooner: a look finds it before, and holds it
_NOT_THE_JOBS = (AttemptState.NODE_FAIL, AttemptState.BOOT_FAIL, AttemptState.PREEMPTED)


class SiteView(Struct, frozen=True):
    """One look at the state at one instant."""

    state: ControllerState
    playbook: Playbook
    rules: RetryRules
    now: float
    decisions: dict[str, Decision] = field(default_factory=dict)  # by exception id: those that stand
    promised: list[Spent] = field(default_factory=list)  # what these will be charged
    charged: list[tuple[int, Fleet]] = field(default_factory=list)  # with how much of that, the cluster: the latest
    about: dict[str, list[ExceptionRecord]] = field(default_factory=dict)  # by job id, sought once a look
    newest: dict[str, dict[str, int]] = field(default_factory=dict)  # incarnations by job id, sought once a look
    wishes: dict[str, tuple[int, Decision]] = field(default_factory=dict)  # what would be decided after this many

    def job(self, job_id: str) -> Job | None:
        case = self.state.cases.get(job_id)
        return self.state.known.jobs.get(job_id) or (case.job if case else None)

    def owner_of(self, record: ExceptionRecord) -> str:
        job_id, attempt = record.subject.job_id, record.attempt
        if attempt is not None and (user := self.state.user_of(attempt)):
            return user
        job, story_s = self.job(job_id), self.state.known.stories.get(job_id, 0.0)
        return "" if job is None or came_after(job, record.time_s, story_s) else job.user

    def latest(self, job_id: str) -> int:
        case, known = self.state.cases.get(job_id), self.state.known
        latest = max(case.latest if case else 0, self._newest("running", known.running).get(job_id, 0))
        job = known.jobs.get(job_id)
        if latest or job is None or not job.restarts:
            return latest
        return self._newest("ended", known.ended).get(job_id, 0)  # it ran before, and a person put it back

    def _newest(self, which: str, attempts: Iterable[AttemptId]) -> Mapping[str, int]:
        if which not in self.newest:
            newest = self.newest[which] = {}
            for attempt in attempts:
                newest[attempt.job_id] = max(attempt.incarnation, newest.get(attempt.job_id, 0))
        return self.newest[which]

    def node(self, name: str) -> Node | None:
        return self.state.known.nodes.get(name)

    def waiting(self) -> Sequence[Job]:
        return [job for job in self.state.known.jobs.values() if job.state is JobState.PENDING]

    def running(self) -> Sequence[Attempt]:
        return list(self.state.known.running.values())

    def resource(self, name: str) -> Resource:
        return self.playbook.resource(name)

    def recovery(self, record: ExceptionRecord) -> tuple[Component, Ruling] | None:
        case = self.state.cases.get(record.subject.job_id)
        if case is None or case.failure is None or not self.is_of_attempt(record):
            return None
        return recovery_of(case, case.failure.attempt, self.decision(record))

    def is_of_attempt(self, record: ExceptionRecord) -> bool:
        failure = self._failure(record.subject.job_id)
        return failure is not None and failure.verdict is not None and failure.record.id == record.id

    def decision(self, record: ExceptionRecord) -> Decision:
        """The retry decision on the failed attempt that a record was made of."""
        if record.id in self.decisions:
            return self.decisions[record.id]
        promised, wish = self.wishes.get(record.id, (-1, None))
        if wish is None or promised != len(self.promised):  # what others are promised may leave less for it
            wish = self._decided(record)
            self.wishes[record.id] = len(self.promised), wish
        return wish

    def _decided(self, record: ExceptionRecord) -> Decision:
        case = self.state.cases[record.subject.job_id]
        failure = case.failure
        if failure is None or failure.verdict is None:
            raise ValueError(f"{record.id} is not judged")
        hold_order, verdict = self._hold_order_on(case.job), failure.verdict
        if hold_order:  # before the budgets are asked: it is charged for when it starts
            verdict = replace(verdict, wait_s=max(verdict.wait_s, PARKED_S))
        decision = decide(
            case.job,
            failure.attempt,
            verdict,
            case.past,
            self._charged(),
            self.rules,
            self.now,
            self._uncounted(case, failure.attempt.id),
        )
        if forbidden := self._forbids_requeue(failure.attempt, failure.record.time_s):
            decision = replace(decision, kind=DecisionKind.STOP, reason=forbidden)
        if decision.retries and (successor := successor_of(case.job, failure.attempt, self.state.known.jobs)):
            decision = replace(decision, kind=DecisionKind.STOP, reason=successor)
        if decision.retries and hold_order:
            reason = f"{decision.reason}; it waits until {hold_order.subject.resource} works again ({hold_order.id})"
            decision = replace(decision, delay_s=max(decision.delay_s, PARKED_S), reason=reason)
        return decision

    def settle_on(self, record: ExceptionRecord) -> None:
        """The decision of now stands, and is charged where it makes us put the job back: others that wait are not."""
        if record.id in self.decisions:
            return
        case, decision = self.state.cases[record.subject.job_id], self.decision(record)
        self.decisions[record.id] = decision
        if case.failure is None or is_free(case.job, case.failure.attempt):
            return
        _, ruling = recovery_of(case, case.failure.attempt, decision)
        if any(isinstance(action, Requeue) for action in ruling.actions):  # as the step of the chain charges it
            starts_s, nodes = self.now + decision.delay_s, case.failure.attempt.nodes
            self.promised.append(Spent(starts_s, case.job.job_id, case.job.user, nodes))

    def _charged(self) -> Fleet:
        """The cluster with what was decided in this look: many that waited for one handler are decided on at once."""
        counted, fleet = self.charged[0] if self.charged else (0, self.state.fleet)
        for spent in self.promised[counted:]:
            fleet = fleet.with_spent(spent, self.now)
        self.charged[:] = [(len(self.promised), fleet)]
        return fleet

    def _uncounted(self, case: Case, failed: AttemptId) -> int:
        """Starts before `failed` that the resource manager has counted, and that were never judged here."""
        job = case.job
        before = job.restarts - (1 if job.state.is_waiting else 0)
        if before <= 0:
            return case.before_us
        seen = sum(a.job_id == job.job_id and a < failed for a in self.state.known.ended)
        return max(0, before - seen) + case.before_us

    def _forbids_requeue(self, attempt: Attempt, failed_s: float) -> str:
        """The words of who took what led to this failure and wants no requeue; "" where nobody does.

        Whoever released the job is not asked long after, nor about a node that fails or a preemption. What was raised
        before its start was seen, bears the number 0.
        """
        if attempt.state in _NOT_THE_JOBS:
            return ""
        for record in self._about(attempt.id.job_id):
            if record.incarnation not in (0, attempt.id.incarnation):
                continue
            plan = self.playbook.plan_for(record.type)
            window_s = plan.window_s if plan and record.outcome is not ExceptionOutcome.STOPPED else math.inf
            for answer in record.verdicts:
                is_recent = attempt.start_s <= answer.time_s and failed_s <= answer.time_s + window_s
                if answer.kind is AnswerKind.HANDLED and REQUEUE in answer.forbids and is_recent:
                    who = answer.handler or answer.component
                    return f"{who} took {record.type} and forbids a requeue: {answer.note}"
        return ""

    def _about(self, job_id: str) -> Sequence[ExceptionRecord]:
        """The exceptions about a job, those that are over first."""
        records = chained(self.state.chain.ended.values(), self.state.chain.open.values())
        if not self.wishes:  # a single decision, as most looks make, is not worth an index
            return [record for record in records if record.subject.job_id == job_id]
        if not self.about:
            for record in records:
                self.about.setdefault(record.subject.job_id, []).append(record)
        return self.about.get(job_id, ())

    def _hold_order_on(self, job: Job) -> ExceptionRecord | None:
        """What keeps jobs that need the same from starting now."""
        hold_orders = (record for record in self.in_force() if record.is_hold_order)
        return next((r for r in hold_orders if self.resource(r.subject.resource).is_needed_by(job)), None)

    def still_needs(self, attempt: AttemptId) -> str:
        """What to say of a job that is to be released and needs what is down; "" where it needs nothing that is."""
        job = self.job(attempt.job_id)
        hold_order = self._hold_order_on(job) if job else None
        return f"{STILL_NEEDS} {hold_order.subject.resource}, which is down ({hold_order.id})" if hold_order else ""

    def failure_of(self, attempt: AttemptId) -> str:
        failure = self._failure(attempt.job_id)
        if failure is None or (attempt.incarnation and failure.attempt.id.incarnation != attempt.incarnation):
            return ""
        return failure.record.id

    def _failure(self, job_id: str) -> Failure | None:
        case = self.state.cases.get(job_id)
        return case.failure if case else None

    def seeing(self, chain: Chain) -> SiteView:
        return replace(self, state=replace(self.state, chain=chain), wishes={}, about={})

    def in_force(self) -> Sequence[ExceptionRecord]:
        return [r for r in self.state.chain.ended.values() if r.subject.resource and r.is_in_force]

    def open_about(self, resource: str) -> Sequence[str]:
        return [
            r.id for r in self.state.chain.open.values() if r.scope is Scope.GLOBAL and r.subject.resource == resource
        ]
