"""Retry policies for a simulation, among them the one that the service follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from perdure.errors import ConfigError
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.decide import decide
from perdure.retry.history import Fleet, PastFailure, Spent
from perdure.retry.rules import RetryRules
from perdure.scheduling.placement.draw import uniform
from perdure.simulation.failures import NODE_FAULT, Failures, Nature
from perdure.simulation.world import Retry
from perdure.triage.verdict import Bound, Label, Verdict

CLASSIFIER = (0.966, 0.077)
"""Transient failures told as such, and deterministic ones mistaken for transient, by the shipped rules and model on
the failing programs that it has not seen (`benchmarks/triage_quality.md`)."""

RetryPolicy = Callable[[Failures, int], Retry | None]
"""``policy(failures, seed)``: the hook for one simulation; it may remember, so no two simulations share one."""


def retry_named(text: str) -> RetryPolicy:
    """The retry policy of a name. Raises `ConfigError`.

    "recorded" goes through all attempts; "never"; "always:K" retries up to K times, 3 unless told; "oracle" retries
    what heals; "predicted:TPR,FPR" asks a classifier that tells a share TPR of the failures that heal, and takes a
    share FPR of the others for such; "service:TPR,FPR" gives that verdict to the decision that the service makes.
    """
    name, _, argument = text.partition(":")
    match name:
        case "recorded" | "never" | "oracle" if not argument:
            return {"recorded": _recorded, "never": _never, "oracle": Oracle}[name]
        case "always":
            most = _most(text, argument)
            return lambda failures, seed: Always(most)  # noqa: ARG005
        case "predicted" | "service":
            rates = _rates(text, argument)
            kind = Predicted if name == "predicted" else Service
            return lambda failures, seed: kind(Classifier(failures, seed, *rates))
    known = "recorded, never, always:K, oracle, predicted:TPR,FPR, service:TPR,FPR"
    raise ConfigError(f"retry policy {text!r}", "no retry policy has that name", f"Use one of: {known}")


@dataclass(slots=True)
class Always:
    """Retry every failure, up to `most` times a job."""

    most: int
    retried: Counter[int] = field(default_factory=Counter)

    def __call__(self, row: int, number: int, now: float) -> bool:  # noqa: ARG002
        self.retried[row] += 1
        return self.retried[row] <= self.most


@dataclass(frozen=True, slots=True)
class Oracle:
    """Retry exactly the failures that heal."""

    failures: Failures
    seed: int = 0

    def __call__(self, row: int, number: int, now: float) -> bool:  # noqa: ARG002
        return self.failures.heals(row, number)


@dataclass(frozen=True, slots=True)
class Classifier:
    """Tells whether a failure heals, wrongly at given rates; one draw a failure, the same whenever it is asked."""

    failures: Failures
    seed: int
    tpr: float  # share of the failures that heal that it takes for such
    fpr: float  # share of the others that it takes for such

    def says_heals(self, row: int, number: int) -> bool:
        rate = self.tpr if self.failures.heals(row, number) else self.fpr
        return uniform(self.seed, row, number) < rate

    def verdict(self, row: int, number: int) -> Verdict:
        """The verdict as triage would put it; its probability is the one after both kinds were equally likely."""
        attempt = self.failures.attempt(row, number)
        cause, nature = str(self.failures.causes[attempt]), self.failures.nature[attempt]
        heals = self.says_heals(row, number)
        right, wrong = (self.tpr, self.fpr) if heals else (1 - self.tpr, 1 - self.fpr)
        return Verdict(
            label=Label.TRANSIENT if heals else Label.DETERMINISTIC,
            p_transient=right / (right + wrong) if right + wrong else 0.5,
            category=cause.replace(" ", "_"),
            summary=cause,
            bound=Bound.NODE if heals and nature == Nature.NODE_BOUND else Bound.NOTHING,
            infrastructure=heals,
            fingerprint=cause,
        )


@dataclass(frozen=True, slots=True)
class Predicted:
    """Retry what a classifier says heals."""

    classifier: Classifier

    def __call__(self, row: int, number: int, now: float) -> bool:  # noqa: ARG002
        return self.classifier.says_heals(row, number)


@dataclass(slots=True)
class Service:
    """The service's own decision, with its budgets and waits, on a classifier's verdicts.

    It sees the cluster as far as a simulation tells: not which nodes an attempt had, so that nodes earn no blame. Of
    the jobs that are there, which its budget for the whole cluster follows, it counts those that would be there had
    nobody waited.
    """

    classifier: Classifier
    rules: RetryRules = field(default_factory=RetryRules)
    fleet: Fleet = field(default_factory=Fleet)
    past: dict[int, list[PastFailure]] = field(default_factory=dict)
    gone_s: NDArray[np.float64] = field(init=False)  # when jobs would be over had nobody waited, sorted

    def __post_init__(self) -> None:
        table = self.classifier.failures.table
        self.gone_s = np.sort(table.submit_s + table.duration_s)

    def __call__(self, row: int, number: int, now: float) -> bool | float:
        job, attempt = self._seen(row, number, now)
        verdict = self.classifier.verdict(row, number)
        past = self.past.setdefault(row, [])
        fleet = replace(self.fleet, live_jobs=self._live_jobs(now))
        decision = decide(job, attempt, verdict, past, fleet, self.rules, now)
        past.append(_past(attempt, verdict, decision.retries, now))
        if decision.retries:
            self.fleet = self.fleet.with_spent(Spent(now, job.job_id, job.user, attempt.nodes))
        return decision.delay_s if decision.retries else False

    def _seen(self, row: int, number: int, now: float) -> tuple[Job, Attempt]:
        failures = self.classifier.failures
        table, of = failures.table, failures.attempt(row, number)
        assert table.attempts is not None
        gpus, user = int(table.gpus[row]), str(table.user[row])
        ran_s = float(table.attempts.duration_s[of])
        state = AttemptState.NODE_FAIL if failures.causes[of] == NODE_FAULT else AttemptState.FAILED
        name = str(table.job_id[row])
        job = Job("trace", name, name, user, JobState.FAILED, float(table.submit_s[row]), gpus=gpus)
        return job, Attempt(AttemptId("trace", name, number), state, (), now - ran_s, now, gpus=gpus, user=user)

    def _live_jobs(self, now: float) -> int:
        came = np.searchsorted(self.classifier.failures.table.submit_s, now, "right")
        return int(came - np.searchsorted(self.gone_s, now, "right"))


def _past(attempt: Attempt, verdict: Verdict, retried: bool, now: float) -> PastFailure:
    ran_s = attempt.elapsed_s
    said = verdict.label, verdict.category, verdict.fingerprint, verdict.infrastructure
    return PastFailure(attempt.id, now, attempt.nodes, *said, ran_s, retried)


def _recorded(failures: Failures, seed: int) -> None:  # noqa: ARG001
    return None


def _never(failures: Failures, seed: int) -> Retry:  # noqa: ARG001
    return lambda row, number, now: False  # noqa: ARG005


def _most(text: str, argument: str) -> int:
    if not argument:
        return 3
    if not argument.isdecimal() or len(argument) > 6:
        what = f"{argument!r} is not a number of retries"
        raise ConfigError(f"retry policy {text!r}", what, "Write it like always:3")
    return int(argument)


def _rates(text: str, argument: str) -> tuple[float, float]:
    if not argument:
        return CLASSIFIER
    try:
        tpr, fpr = (float(word) for word in argument.split(","))
    except ValueError:
        tpr = fpr = -1.0
    if not (0 <= tpr <= 1 and 0 <= fpr <= 1):
        what = f"{argument!r} is not two rates from 0 to 1"
        raise ConfigError(f"retry policy {text!r}", what, "Write it like predicted:0.95,0.1")
    return tpr, fpr
