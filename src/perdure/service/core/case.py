"""What the controller remembers: of each job that failed, and of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.coordination.chain_state import Chain
from perdure.coordination.record import Component, ExceptionRecord
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, Job, begins_anew
from perdure.model.observation import Known
from perdure.retry.decide import Decision
from perdure.retry.history import Fleet, PastFailure, fingerprint_of
from perdure.retry.one_node import NodeEnd
from perdure.service.core.requeue_loop import PutBack
from perdure.triage.verdict import Verdict

MAX_PAST = 32  # failures remembered of one job


class Failure(Struct, frozen=True):
    """The latest failure of a job: judged or not yet, decided or not yet."""

    attempt: Attempt
    record: ExceptionRecord
    verdict: Verdict | None = None
    decision: Decision | None = None

    @property
    def awaits_verdict(self) -> bool:
        return self.verdict is None


def is_of_another(attempt: Attempt, job: Job) -> bool:
    """Whether an attempt is that of another user's job, which had the id before."""
    return attempt.user not in ("", job.user) and attempt.start_s < job.submit_s


class Case(Struct, frozen=True):
    """A job that has failed at least once."""

    job: Job
    latest: int  # highest incarnation seen of the job
    past: tuple[PastFailure, ...] = ()  # judged failures, oldest first, `failure` left out
    failure: Failure | None = None  # the latest
    before_us: int = 0  # failures that were over before this journal began: nobody here judged them

    @property
    def moved_on(self) -> bool:
        """True where a newer attempt exists than the one that failed."""
        return self.failure is not None and self.latest > self.failure.attempt.id.incarnation

    def knows(self, attempt: Attempt) -> bool:
        """Whether this failure is known: a clock that was wrong for a while makes a look report it again."""
        latest = self.failure.attempt.id if self.failure else None
        return attempt.id == latest or any(failure.attempt == attempt.id for failure in self.past)

    def is_of_another(self, attempt: Attempt, job: Job | None) -> bool:
        """Whether this is of a job that had the id before the one of an attempt; `job`: that one, where it is known."""
        if job is not None and begins_anew(self.job, job):
            return True
        user = self.failure.attempt.user if self.failure is not None else ""
        return "" not in (user, attempt.user) and user != attempt.user

    def closed(self) -> Case:
        """The case with its latest failure in the past."""
        failure = self.failure
        if failure is None or failure.verdict is None:
            return replace(self, failure=None)
        verdict, decision = failure.verdict, failure.decision
        past = PastFailure(
            failure.attempt.id,
            failure.record.time_s,
            failure.attempt.nodes,
            verdict.label,
            verdict.category,
            fingerprint_of(verdict, failure.attempt),
            verdict.infrastructure and not verdict.hearsay,
            failure.attempt.elapsed_s,
            retried=decision is None or decision.retries or failure.record.owner is not Component.SCHEDULER,
            p_transient=decision.p_transient if decision else verdict.p_transient,
            logs=verdict.logs,
            state=failure.attempt.state,
            failed_nodes=failure.attempt.failed_nodes,
            steps=verdict.steps,
            first_step=verdict.first_step,
            avoided=decision.exclude if decision and decision.retries else (),
        )
        before = self.past[-1:] and (replace(self.past[-1], logs=()),)
        return replace(self, failure=None, past=(*self.past[:-1], *before, past)[-MAX_PAST:])


class ControllerState(Struct, frozen=True):
    """All that a decision may depend on, besides the event itself and the settings."""

    cluster: str
    known: Known = field(default_factory=Known)
    cases: Mapping[str, Case] = field(default_factory=dict)  # by job id; bounded by `ControllerSettings.max_cases`
    fleet: Fleet = field(default_factory=Fleet)
    chain: Chain = field(default_factory=Chain)
    put_back: Mapping[str, PutBack] = field(default_factory=dict)  # by others, by job id; not written down
    preempted: frozenset[AttemptId] = frozenset()  # by Perdure, and not seen to have ended; not written down
    ends: tuple[NodeEnd, ...] = ()  # of the last half hour, the oldest first; not written down

    def user_of(self, attempt: AttemptId) -> str:
        """Whose start it is that runs, or that failed last of its job; "" for any other.

        The id may be that of another user's job which no look has shown yet.
        """
        case = self.cases.get(attempt.job_id)
        failed = case.failure.attempt if case and case.failure else None
        started = self.known.running.get(attempt) or (failed if failed and failed.id == attempt else None)
        return started.user if started else ""

    def with_case(self, case: Case, most: int) -> ControllerState:
        """The state with a case as it is now; beyond `most` one is forgotten."""
        cases = {**self.cases, case.job.job_id: case}
        if len(cases) > most:
            del cases[min(cases, key=lambda job_id: _keeping_rank(cases[job_id]))]
        return replace(self, cases=cases)

    def failure_of(self, record: ExceptionRecord) -> Failure | None:
        """The latest failure of the job that a record is about, if that is the record."""
        case = self.cases.get(record.subject.job_id)
        failure = case.failure if case else None
        return failure if failure is not None and failure.record.id == record.id else None

    def in_chain(self, record: ExceptionRecord) -> ControllerState:
        """The state with a record that the chain may have forgotten, as it does what ended long ago."""
        chain = self.chain
        if record.id in chain.open or record.id in chain.ended or not record.state.is_over:
            return self
        return replace(self, chain=replace(chain, ended={**chain.ended, record.id: record}))


def _keeping_rank(case: Case) -> tuple[bool, float]:
    """What is forgotten first: the oldest of those that are settled; those that await a verdict only then."""
    failure = case.failure
    return (failure is not None and failure.awaits_verdict, failure.record.time_s if failure else 0.0)
