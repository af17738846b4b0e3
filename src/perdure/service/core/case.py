"""What the controller remembers: of each job that failed, and of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from perdure.coordination.chain import Chain
from perdure.coordination.record import ExceptionRecord
from perdure.model.jobs import Attempt, Job
from perdure.model.observation import Known
from perdure.retry.decide import Decision
from perdure.retry.history import Fleet, PastFailure
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


class ControllerState(Struct, frozen=True):
    """All that a decision may depend on, beside the event itself and the settings."""

    cluster: str
    known: Known = field(default_factory=Known)
    cases: Mapping[str, Case] = field(default_factory=dict)  # by job id; bounded by `Settings.max_cases`
    fleet: Fleet = field(default_factory=Fleet)
    chain: Chain = field(default_factory=Chain)
