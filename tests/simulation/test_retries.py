"""Retry policies in a simulation: each does what its name says, on failures that heal and on those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from perdure.errors import ConfigError
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.retry.decide import Decision, decide
from perdure.retry.rules import RetryRules
from perdure.simulation import retries
from perdure.simulation.failures import Failures, Nature, model_named, recorded
from perdure.simulation.retries import CLASSIFIER, ServiceRetries, TraceClassifier, retry_named
from perdure.simulation.retry_hook import FailedRun
from perdure.simulation.simulate import simulate
from perdure.traces.generate import generate
from tests.copying import replace
from tests.simulation.tables import jobs, with_attempts

LISTS = [[(60, False), (60, True)], [(60, False), (90, False), (90, False), (90, False)], [(500, True)]]
CLUSTER = Cluster.parse("1x8")
CLUSTER_40 = Cluster.parse("40x8")


def failures_of(lists: Sequence[Sequence[tuple[float, bool]]]) -> Failures:
    rows = [(1, 0, sum(took_s for took_s, _ in attempts)) for attempts in lists]
    return recorded(jobs(*rows, user=["u"] * len(lists), attempts=with_attempts(jobs(*rows), lists)))


def attempts_under(name: str, failures: Failures, seed: int = 0) -> list[int]:
    log = simulate(failures.table, CLUSTER, "fifo", retry=retry_named(name)(failures, seed)).attempts
    return np.bincount(log.job, minlength=len(failures.table)).tolist()


def philly(n: int) -> JobTable:
    table = generate(n, Cluster.parse("20x8"), 0.7, np.random.default_rng(0), failures=False)
    return replace(table, ending=np.zeros(n, np.int8))  # how they end is drawn


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("recorded", [2, 4, 1]),
        ("never", [1, 1, 1]),
        ("always:1", [2, 2, 1]),
        ("always", [2, 4, 1]),
        ("always:0", [1, 1, 1]),
        ("oracle", [2, 1, 1]),
        ("predicted:1,0", [2, 1, 1]),
        ("predicted:0,1", [1, 4, 1]),
        ("service:1,0", [2, 1, 1]),
        ("service:0,0", [1, 1, 1]),
    ],
)
def test_attempts_that_run_under_each_policy(name: str, wanted: list[int]) -> None:
    assert attempts_under(name, failures_of(LISTS)) == wanted


def test_the_service_waits_longer_after_each_failure() -> None:
    failures = failures_of([[(60, False), (60, False), (60, True)]])
    found = simulate(failures.table, CLUSTER, "fifo", retry=retry_named("service:1,0")(failures, 0))
    rules = RetryRules()
    waits = found.attempts.start_s[1:] - found.attempts.end_s[:-1]
    assert waits.tolist() == [rules.back_off_s, 2 * rules.back_off_s]


def test_the_service_keeps_its_budgets() -> None:
    most = RetryRules().max_infrastructure_retries
    failures = failures_of([[(60, False)] * (most + 5) + [(60, True)]])
    assert attempts_under("service:1,0", failures) == [most + 1]


def test_the_service_is_asked_through_its_own_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(*args: Any) -> Decision:
        asked.append(args)
        return decide(*args)

    monkeypatch.setattr(retries, "decide", noted)
    attempts_under("service:1,0", failures_of(LISTS))
    assert [(job.job_id, attempt.elapsed_s) for job, attempt, *_ in asked] == [("j0", 60.0), ("j1", 60.0)]


def test_the_jobs_that_the_service_counts_are_those_that_are_there() -> None:
    failures = failures_of([[(10, True)], [(20, True)], [(30, True)]])
    service = ServiceRetries(TraceClassifier(failures, 0, 1.0, 0.0))
    assert [service._live_jobs(now) for now in (0.0, 10.0, 25.0, 30.0)] == [3, 2, 1, 0]


def test_a_classifier_errs_as_often_as_its_rates_say() -> None:
    failures = model_named("philly")(philly(20_000), 0)
    tpr, fpr = 0.8, 0.3
    classifier = TraceClassifier(failures, 1, tpr, fpr)
    first = failures.table.attempts.first
    said: dict[bool, list[bool]] = {True: [], False: []}
    for row in range(len(failures.table)):
        for number, record in enumerate(range(first[row], first[row + 1]), 1):
            if failures.nature[record] not in (Nature.PASSED, Nature.KILLED):
                said[failures.heals(record)].append(classifier.says_heals(FailedRun(row, number, record, 0.0, 1.0)))
    assert np.mean(said[True]) == pytest.approx(tpr, abs=0.06)
    assert np.mean(said[False]) == pytest.approx(fpr, abs=0.02)


def test_a_verdict_is_drawn_once_a_failure_whatever_the_schedule() -> None:
    failures = model_named("philly")(philly(2000), 0)
    runs = [
        simulate(failures.table, Cluster.parse(size), policy, retry=retry_named("predicted:0.5,0.5")(failures, 4))
        for size, policy in (("20x8", "fifo"), ("40x8", "srtf"))
    ]
    tries = [np.bincount(run.attempts.job, minlength=2000).tolist() for run in runs]
    assert tries[0] == tries[1]
    other = simulate(failures.table, CLUSTER_40, "srtf", retry=retry_named("predicted:0.5,0.5")(failures, 5))
    assert np.bincount(other.attempts.job, minlength=2000).tolist() != tries[0]


def test_probabilities_follow_the_rates() -> None:
    failures = failures_of(LISTS)
    healing, hopeless = FailedRun(0, 1, 0, 60.0, 60.0), FailedRun(1, 1, 2, 60.0, 60.0)
    assert TraceClassifier(failures, 0, 0.9, 0.1).verdict(healing).p_transient in (
        pytest.approx(0.9),
        pytest.approx(0.1),
    )
    assert TraceClassifier(failures, 0, 1.0, 1.0).verdict(hopeless).p_transient == 0.5


def test_better_knowledge_wastes_less_and_never_costs_a_job() -> None:
    failures = model_named("philly")(philly(3000), 0)

    def outcome(name: str) -> tuple[float, float]:
        found = simulate(failures.table, CLUSTER_40, "sjf", retry=retry_named(name)(failures, 0))
        log = found.attempts
        return float((log.ran_s * failures.table.gpus[log.job])[~log.passed].sum()), float(found.passed.mean())

    wasted, success = zip(*map(outcome, ("recorded", "predicted", "oracle", "never")), strict=True)
    assert list(wasted) == sorted(wasted, reverse=True)
    assert success[0] == success[2] >= success[1] >= success[3]
    assert outcome("predicted") == outcome(f"predicted:{CLASSIFIER[0]},{CLASSIFIER[1]}")


@pytest.mark.parametrize(
    "name",
    ["", "sometimes", "never:3", "always:-1", "always:x", "predicted:2,0", "predicted:nan,0", "service:1", "oracle:1"],
)
def test_unknown_policies_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="retry policy"):
        retry_named(name)
