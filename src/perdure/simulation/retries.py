"""Retry policies for a simulation, among them the one that the service follows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perdure.errors import ConfigError
from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.retry.decide import decide
from perdure.retry.history import Fleet, PastFailure, Spent, blamed, fingerprint_of
from perdure.retry.rules import RetryRules
from perdure.scheduling.draws import uniform
from perdure.simulation.failures import NODE_FAULT, Failures, Nature
from perdure.simulation.retry_hook import Again, FailedRun, Retry
from perdure.triage.verdict import Bound, Label, Verdict

CLASSIFIER = (0.89, 0.10)
"""Transient failures told as such, and deterministic ones mistaken for transient, by the shipped rules and model on
the foundry's programs of families that it has not seen (`benchmarks/triage_quality.md`, "the product")."""

RetryPolicy = Callable[[Failures, int], Retry | None]
"""``policy(failures, seed)``: the hook for one simulation; it may remember, so no two simulations share one."""


def retry_named(text: str) -> RetryPolicy:
    """The retry policy of a name. Raises `ConfigError`.

    "recorded" goes through all attempts as they are; "never"; "always:K" retries up to K times, 3 unless told, wherever
    there is room; "oracle" retries what heals, off bad nodes; "predicted:TPR,FPR" asks a classifier that tells a share
    TPR of the failures that heal, and takes a share FPR of the others for such; "service:TPR,FPR" gives that verdict
    to the decision that the service makes.
    """
    name, _, argument = text.partition(":")
    form = RETRY_POLICIES.get(name)
    if form is None or (argument and form.usage == name):
        known = ", ".join(each.usage for each in RETRY_POLICIES.values())
        raise ConfigError(f"retry policy {text!r}", "no retry policy has that name", f"Use one of: {known}")
    return form.make(text, argument)


@dataclass(frozen=True, slots=True)
class Always:
    """Retry every failure, up to `most` times a job, wherever there is room."""

    most: int

    def __call__(self, failed: FailedRun) -> Again | None:
        return Again() if failed.number <= self.most else None


@dataclass(frozen=True, slots=True)
class Oracle:
    """Retry exactly the failures that heal, off the node whose fault it was."""

    failures: Failures
    seed: int = 0

    def __call__(self, failed: FailedRun) -> Again | None:
        if not self.failures.heals(failed.record):
            return None
        return Again(avoid=(failed.bad,) if failed.bad >= 0 else ())


@dataclass(frozen=True, slots=True)
class TraceClassifier:
    """Tells whether a failure heals, wrongly at given rates; one draw a failure, the same whenever it is asked.

    Of what it says heals it also tells, never wrongly, whether it is bound to a node.
    """

    failures: Failures
    seed: int
    tpr: float  # share of the failures that heal that it takes for such
    fpr: float  # share of the others that it takes for such

    def says_heals(self, failed: FailedRun) -> bool:
        rate = self.tpr if self.failures.heals(failed.record) else self.fpr
        return uniform(self.seed, failed.row, failed.number) < rate

    def verdict(self, failed: FailedRun) -> Verdict:
        """The verdict as triage would put it; its probability is the one after both kinds were equally likely."""
        heals = self.says_heals(failed)
        of_node = heals and bool(self.failures.nature[failed.record] == Nature.NODE_BOUND)
        right, wrong = (self.tpr, self.fpr) if heals else (1 - self.tpr, 1 - self.fpr)
        p_transient = right / (right + wrong) if right + wrong else 0.5
        return _verdict(str(self.failures.causes[failed.record]), heals, of_node, p_transient)


@lru_cache(maxsize=256)  # causes are few
def _verdict(cause: str, heals: bool, of_node: bool, p_transient: float) -> Verdict:
    return Verdict(
        label=Label.TRANSIENT if heals else Label.DETERMINISTIC,
        p_transient=p_transient,
        category=cause.replace(" ", "_"),
        summary=cause,
        bound=Bound.NODE if of_node else Bound.NOTHING,
        infrastructure=heals,
        fingerprint=cause,
    )


@dataclass(frozen=True, slots=True)
class Predicted:
    """Retry what a classifier says heals; after a fault of a node, off all nodes that the attempt had."""

    classifier: TraceClassifier

    def __call__(self, failed: FailedRun) -> Again | None:
        if not self.classifier.says_heals(failed):
            return None
        return Again(avoid=failed.nodes if failed.bad >= 0 else ())


@dataclass(slots=True)
class ServiceRetries:
    """The service's own decision, with its budgets, waits and blame of nodes, on a classifier's verdicts.

    It sees the nodes of an attempt, unless GPUs are only counted; of a node fault it is told the node, as a resource
    manager tells which node went down. Of the jobs that are there, which its budget for the whole cluster follows, it
    counts those that would be there had nobody waited.
    """

    classifier: TraceClassifier
    rules: RetryRules = field(default_factory=RetryRules)
    fleet: Fleet = field(default_factory=Fleet)
    past: dict[int, tuple[PastFailure, ...]] = field(default_factory=dict)  # of jobs that go on
    submit_s: list[float] = field(init=False)  # sorted
    gone_s: list[float] = field(init=False)  # when jobs would be over had nobody waited, sorted

    def __post_init__(self) -> None:
        table = self.classifier.failures.table
        self.submit_s, self.gone_s = table.submit_s.tolist(), np.sort(table.submit_s + table.duration_s).tolist()

    def __call__(self, failed: FailedRun) -> Again | None:
        job, attempt = self._seen(failed)
        verdict, now = self.classifier.verdict(failed), failed.now_s
        past = self.past.pop(failed.row, ())
        decision = decide(job, attempt, verdict, past, self._fleet_at(failed), self.rules, now)
        self.fleet = blamed(self.fleet, job, attempt, verdict, self.rules.node_memory_s, now)
        if not decision.retries:
            return None
        self.past[failed.row] = *past, _past(attempt, verdict, decision.p_transient, now)
        starts_s = now + decision.delay_s
        self.fleet = self.fleet.with_spent(Spent(starts_s, job.job_id, job.user, attempt.nodes), now)
        return Again(decision.delay_s, tuple(map(int, decision.exclude)))

    def _seen(self, failed: FailedRun) -> tuple[Job, Attempt]:
        failures, row, now = self.classifier.failures, failed.row, failed.now_s
        name, user, gpus = str(failures.table.job_id[row]), str(failures.table.user[row]), int(failures.table.gpus[row])
        down = failures.causes[failed.record] == NODE_FAULT
        state = AttemptState.NODE_FAIL if down else AttemptState.FAILED
        job = Job(
            "trace", name, name, user, JobState.FAILED, float(failures.table.submit_s[row]),
            gpus=gpus, node_count=max(1, len(failed.nodes)), excluded=_names(failed.avoided),
        )  # fmt: skip
        attempt = Attempt(
            AttemptId("trace", name, failed.number), state, _names(failed.nodes), now - failed.ran_s, now,
            gpus=gpus, user=user, failed_nodes=_names((failed.bad,)) if down and failed.bad >= 0 else (),
        )  # fmt: skip
        return job, attempt

    def _fleet_at(self, failed: FailedRun) -> Fleet:
        """What is known of the cluster: nothing takes its nodes out of use."""
        if failed.all_nodes and not self.fleet.usable:
            self.fleet = replace(self.fleet, usable={"": frozenset(_names(range(failed.all_nodes)))})
        live = self._live_jobs(failed.now_s)
        return replace(self.fleet, live_jobs=live, running_jobs=live)

    def _live_jobs(self, now: float) -> int:
        return bisect_right(self.submit_s, now) - bisect_right(self.gone_s, now)


def _names(nodes: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, nodes))


def _past(attempt: Attempt, verdict: Verdict, p_transient: float, now: float) -> PastFailure:
    said = verdict.label, verdict.category, fingerprint_of(verdict, attempt), verdict.infrastructure
    return PastFailure(attempt.id, now, attempt.nodes, *said, attempt.elapsed_s, True, p_transient)


def _recorded(failures: Failures, seed: int) -> None:  # noqa: ARG001
    return None


def _never(failures: Failures, seed: int) -> Retry:  # noqa: ARG001
    return lambda failed: None  # noqa: ARG005


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


def _always(text: str, argument: str) -> RetryPolicy:
    most = _most(text, argument)
    return lambda failures, seed: Always(most)  # noqa: ARG005


def _by_classifier(kind: Callable[[TraceClassifier], Retry]) -> Callable[[str, str], RetryPolicy]:
    def make(text: str, argument: str) -> RetryPolicy:
        rates = _rates(text, argument)
        return lambda failures, seed: kind(TraceClassifier(failures, seed, *rates))

    return make


class RetryForm(NamedTuple):
    """How a retry policy is named, what makes it of its name and what is behind the colon, and what people read."""

    usage: str
    make: Callable[[str, str], RetryPolicy]
    offered: str  # the name that people can choose
    title: str
    says: str


RETRY_POLICIES: Mapping[str, RetryForm] = {  # a new policy is a class, and an entry here
    "recorded": RetryForm(
        "recorded", lambda *_: _recorded, "recorded", "As recorded", "The attempts that the trace holds"
    ),
    "never": RetryForm("never", lambda *_: _never, "never", "Never", "No failure is retried"),
    "always": RetryForm("always:K", _always, "always:3", "Always, up to 3", "Each failure is retried up to 3 times"),
    "oracle": RetryForm(
        "oracle", lambda *_: Oracle, "oracle", "Oracle", "Exactly the failures that a retry gets past are retried"
    ),
    "predicted": RetryForm(
        "predicted:TPR,FPR",
        _by_classifier(Predicted),
        "predicted",
        "Classifier",
        "The failures that a classifier calls transient are retried",
    ),
    "service": RetryForm(
        "service:TPR,FPR",
        _by_classifier(ServiceRetries),
        "service",
        "This service",
        "As this service decides, by expected cost",
    ),
}
