"""Metrics for Prometheus: what is Perdure's own, never a job, a user or a text as a label."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from perdure.errors import PerdureError
from perdure.service.operations import Operations, Status
from perdure.service.queries import notices, totals
from perdure.service.queries.reader import Reader

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FRESH_S = 5.0  # totals are counted anew no more often than this
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The registry. Whoever decides calls `decided`; all else is read from the journal when asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._latency = Histogram(
            "perdure_decision_seconds",
            "From a failed attempt's log tail at hand to the decision in the journal.",
            registry=self.registry,
            buckets=BUCKETS_S,
        )

        self._notices = Counter(
            "perdure_notices", "Tries to send a message, by target and outcome.", ["target", "outcome"],
            registry=self.registry,
        )  # fmt: skip

    def tried_notice(self, target: str, outcome: str) -> None:
        """Note a try to send a message: "sent" or "failed"."""
        self._notices.labels(target, outcome).inc()

    def decided(self, seconds: float) -> None:
        """Note how long one decision took, from the log tail at hand to the journal."""
        self._latency.observe(max(0.0, seconds))

    def watch(self, reader: Reader, operations: Operations, clock: Callable[[], float] = time.time) -> None:
        """Add what the journal and the service say of themselves."""
        self.registry.register(_Standing(reader, operations, clock))

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _Standing(Collector):
    """Reads the journal when Prometheus asks."""

    def __init__(self, reader: Reader, operations: Operations, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._operations = operations
        self._clock = clock
        self._lock = Lock()
        self._totals: totals.Totals | None = None
        self._counted_s = float("-inf")

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _of_status(self._operations.status(), self._clock())
        found: totals.Totals | None
        try:
            found = self._fresh_totals()
        except PerdureError:
            found = None
        yield GaugeMetricFamily("perdure_journal_up", "1 where the journal can be read.", found is not None)
        if found is not None:
            yield from _of_totals(found)
            yield from _of_notices(notices.waiting(self._reader))

    def _fresh_totals(self) -> totals.Totals:
        with self._lock:
            now = self._clock()
            if self._totals is None or not 0 <= now - self._counted_s < FRESH_S:
                self._totals, self._counted_s = totals.totals(self._reader), now
            return self._totals


def _of_status(status: Status, now: float) -> Iterator[Metric]:
    yield GaugeMetricFamily("perdure_armed", "1 where decisions are carried out, 0 in shadow mode.", int(status.armed))
    yield GaugeMetricFamily("perdure_stopped", "1 while the kill switch is on.", int(status.stopped))
    age = GaugeMetricFamily("perdure_last_look_age_seconds", "Since the cluster was last looked at.")
    if status.last_look_s is not None:
        age.add_metric([], max(0.0, now - status.last_look_s))
    yield age
    unseen = GaugeMetricFamily("perdure_unseen", "1 for each part that cannot be asked.", labels=["part"])
    for part in sorted(status.unseen):
        unseen.add_metric([part], 1)
    yield unseen
    if status.retries:
        text = "Retries of the cluster in the last hour, and planned for later."
        yield GaugeMetricFamily("perdure_retry_budget_used", text, status.retries.used)
        text = "Retries that the cluster may have in an hour."
        yield GaugeMetricFamily("perdure_retry_budget", text, status.retries.limit)
    spent = "Budgets of users, nodes and the cluster that make retries start later now (5: five or more)."
    yield GaugeMetricFamily("perdure_retry_budgets_spent", spent, len(status.spent))


def _of_notices(found: Mapping[str, int]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily("perdure_notices_waiting", "Messages that are not sent yet.", labels=["target"])
    for target, number in sorted(found.items()):
        waiting.add_metric([target], number)
    yield waiting


def _of_totals(found: totals.Totals) -> Iterator[Metric]:
    decisions = CounterMetricFamily("perdure_decisions", "Decisions on failed attempts.", labels=["kind", "category"])
    for (kind, category), number in sorted(found.decisions.items()):
        decisions.add_metric([kind, category], number)
    yield decisions
    failures = CounterMetricFamily("perdure_failures", "Failed attempts by cause.", labels=["category"])
    for category, number in sorted(found.failures.items()):
        failures.add_metric([category], number)
    yield failures
    actions = GaugeMetricFamily("perdure_actions", "Actions by state.", labels=["kind", "state"])
    for (kind, state), number in sorted(found.actions.items()):
        actions.add_metric([kind, state], number)
    yield actions
    jobs = GaugeMetricFamily("perdure_jobs", "Jobs that are not over, by state.", labels=["state"])
    for state, number in sorted(found.jobs.items()):
        jobs.add_metric([state], number)
    yield jobs
    text = "GPU time of failed attempts; what stops kept from being burnt again; what limits that stop jobs cost."
    hours = CounterMetricFamily("perdure_gpu_seconds", text, labels=["fate"])
    for fate, gpu_h in found.gpu_h.items():
        hours.add_metric([fate], gpu_h * 3600)
    yield hours
    yield CounterMetricFamily("perdure_limited", "Retries that a limit or budget refused or made later.", found.limited)
