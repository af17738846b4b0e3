"""Metrics for Prometheus: of Perdure and its process, never a job, a user, a node or a text as a label."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import perdure
from perdure.blame.builders.attempts import CODE, GPU, NODE, STORAGE, USER
from perdure.coordination.playbook import Playbook, own_playbook
from perdure.errors import PerdureError
from perdure.service.notices import queries as notices
from perdure.service.store.queries import totals
from perdure.service.store.queries.reader import Reader
from perdure.service.workers.operations import Operations, Status
from perdure.triage.learning.promise import PromiseCheck
from perdure.triage.verdict import Label
from perdure.waits.calibration import Calibration

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FRESH_S = 5.0  # totals are recounted no more often than this
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
USUAL_SUSPECTS = (CODE, USER, NODE, GPU, STORAGE)  # tiers that are told where nobody is suspected, too


class ServiceMetrics:
    """The registry. Whoever decides calls `decided`; all else is read from the journal when asked for."""

    def __init__(self, playbook: Playbook | None = None) -> None:
        """`playbook` has the types of exceptions that are told apart; None: Perdure's own."""
        self._playbook = playbook or own_playbook()
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        build = Info("perdure_build", "1, with the versions of Perdure and of Python.", registry=self.registry)
        build.info({"version": perdure.__version__, "python": platform.python_version()})
        self._latency = Histogram(
            "perdure_decision_seconds",
            "From a failed attempt's log tail at hand to the decision in the journal.",
            registry=self.registry,
            buckets=BUCKETS_S,
        )
        text = "Verdicts on failed attempts since the process began, by label."
        self._verdicts = Counter("perdure_verdicts", text, ["label"], registry=self.registry)
        for label in Label:  # all of them from the beginning: a rate needs the zero
            self._verdicts.labels(label.value)
        self._notices = Counter(
            "perdure_notices", "Tries to send a message, by target and outcome.", ["target", "outcome"],
            registry=self.registry,
        )  # fmt: skip

    def tried_notice(self, target: str, outcome: str) -> None:
        """Note a try to send a message: "sent" or "failed"."""
        self._notices.labels(target, outcome).inc()

    def decided(self, seconds: float, label: Label) -> None:
        """Note how long one decision took, from the log tail at hand to the journal, and the label of its verdict."""
        self._latency.observe(max(0.0, seconds))
        self._verdicts.labels(label.value).inc()

    def watch(
        self,
        reader: Reader,
        operations: Operations,
        clock: Callable[[], float] = time.time,
        kept: Callable[[], Calibration] = Calibration,
        promise: Callable[[], PromiseCheck] = PromiseCheck,
    ) -> None:
        """Add what the journal and the service say of themselves.

        `kept` says how often promised starts have held, `promise` how often verdicts have.
        """
        self.registry.register(_Standing(reader, operations, clock, self._playbook, kept, promise))

    def render(self) -> bytes:
        return generate_latest(self.registry)


class _Growing:
    """Counters out of the journal's totals, which get smaller when it is pruned: each begins at 0 and never falls.

    Prometheus takes a counter that falls for one that began again, and would count everything once more.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], float] | None = None
        self._sums: dict[tuple[str, ...], float] = {}

    def take(self, found: dict[tuple[str, ...], float]) -> None:
        """Add what has come since the totals that were taken before; the first ones only say where to begin."""
        last = found if self._last is None else self._last
        for key, total in found.items():
            self._sums[key] = self._sums.get(key, 0.0) + max(0.0, total - last.get(key, 0.0))
        self._last = found

    def of(self, name: str) -> list[tuple[tuple[str, ...], float]]:
        """The counters whose keys begin with `name`, each with the rest of its key, in order."""
        return sorted((key[1:], total) for key, total in self._sums.items() if key[0] == name)


class _Standing(Collector):
    """Reads the journal when Prometheus asks, and once before that: counters are of what came since then."""

    def __init__(
        self,
        reader: Reader,
        operations: Operations,
        clock: Callable[[], float],
        playbook: Playbook,
        kept: Callable[[], Calibration],
        promise: Callable[[], PromiseCheck],
    ) -> None:
        self._reader = reader
        self._playbook = playbook
        self._operations = operations
        self._clock = clock
        self._kept = kept
        self._promise = promise
        self._lock = Lock()
        self._totals: totals.Totals | None = None
        self._counted_s = float("-inf")
        self._growing = _Growing()
        with suppress(PerdureError):
            self._growing.take(_counted(totals.totals(reader, playbook)))

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _of_status(self._operations.status(), self._clock())
        yield from _of_waits(self._kept())
        yield from _of_promise(self._promise())
        found: totals.Totals | None
        try:
            found = self._fresh_totals()
        except PerdureError:
            found = None
        yield GaugeMetricFamily("perdure_journal_up", "1 where the journal can be read.", found is not None)
        if found is not None:
            yield from _counters(self._growing)
            yield from _of_totals(found)
            text = "Messages that are not sent yet."
            yield _labelled("perdure_notices_waiting", text, ("target",), notices.waiting(self._reader))

    def _fresh_totals(self) -> totals.Totals:
        with self._lock:
            now = self._clock()
            if self._totals is None or not 0 <= now - self._counted_s < FRESH_S:
                self._totals, self._counted_s = totals.totals(self._reader, self._playbook), now
                self._growing.take(_counted(self._totals))
            return self._totals


def _of_status(status: Status, now: float) -> Iterator[Metric]:
    yield GaugeMetricFamily("perdure_armed", "1 where decisions are carried out, 0 in shadow mode.", int(status.armed))
    yield GaugeMetricFamily("perdure_stopped", "1 while the kill switch is on.", int(status.stopped))
    age = GaugeMetricFamily("perdure_last_look_age_seconds", "Since the cluster was last looked at.")
    if status.last_look_s is not None:
        age.add_metric([], max(0.0, now - status.last_look_s))
    yield age
    yield _labelled(
        "perdure_unseen", "1 for each part that cannot be asked.", ("part",), dict.fromkeys(status.unseen, 1)
    )
    if status.retries:
        text = "Retries of the cluster in the last hour, and planned for later."
        yield GaugeMetricFamily("perdure_retry_budget_used", text, status.retries.used)
        text = "Retries that the cluster may have in an hour."
        yield GaugeMetricFamily("perdure_retry_budget", text, status.retries.limit)
    text = "Retries of this hour that the cluster, a user, a node has left, at the least."
    yield _labelled("perdure_retry_budget_left", text, ("of",), status.left)
    spent = "Budgets of users, nodes and the cluster that make retries start later now (5: five or more)."
    yield GaugeMetricFamily("perdure_retry_budgets_spent", spent, len(status.spent))


def _of_waits(kept: Calibration) -> Iterator[Metric]:
    text = "Answers of the last 30 days to when a job starts, of those that have started: one an hour and job."
    yield GaugeMetricFamily("perdure_waits_answers", text, kept.answers)
    text = "Share of these whose start lay in the interval told, which is to hold 0.8; no value below 20 answers."
    covered = GaugeMetricFamily("perdure_waits_coverage_ratio", text)
    if kept.is_known:
        covered.add_metric([], kept.within)
    yield covered


def _of_promise(found: PromiseCheck) -> Iterator[Metric]:
    halves = {"stopped_that_pass": found.stops, "retried_that_come_back": found.retries}
    text = "Failures of the last 90 days of which it is proven whether they pass when run again."
    yield _labelled("perdure_proven_failures", text, ("of",), {name: half.proven for name, half in halves.items()})
    text = "Of these, failures that the thresholds as installed take for the other kind."
    yield _labelled("perdure_proven_errors", text, ("of",), {name: half.wrong for name, half in halves.items()})
    text = "1 where the thresholds of verdicts are widened, since their promise was broken: more probes."
    broken = {name: half.is_broken for name, half in halves.items()}
    yield _labelled("perdure_thresholds_widened", text, ("of",), broken)


def _counted(found: totals.Totals) -> dict[tuple[str, ...], float]:
    """What is told as a counter, by its name and labels."""
    return {
        **{("decisions", kind, category): float(number) for (kind, category), number in found.decisions.items()},
        **{("failures", category): float(number) for category, number in found.failures.items()},
        **{("gpu_seconds", fate): gpu_h * 3600 for fate, gpu_h in found.gpu_h.items()},
        ("limited",): float(found.limited),
    }


COUNTERS = (
    ("decisions", "Decisions on failed attempts.", ("kind", "category")),
    ("failures", "Failed attempts by cause.", ("category",)),
    (
        "gpu_seconds",
        "GPU time that failed attempts lost; what stops kept from being burnt again; what limits that stop jobs cost.",
        ("fate",),
    ),
    ("limited", "Retries that a limit or budget refused or made later.", ()),
)


def _counters(growing: _Growing) -> Iterator[Metric]:
    for name, text, labels in COUNTERS:
        family = CounterMetricFamily(f"perdure_{name}", text, labels=labels)
        for values, number in growing.of(name):
            family.add_metric(values, number)
        yield family


def _of_totals(found: totals.Totals) -> Iterator[Metric]:
    yield _labelled("perdure_actions", "Actions by state.", ("kind", "state"), found.actions)
    yield _labelled("perdure_jobs", "Jobs that are not over, by state.", ("state",), found.jobs)
    text = "Exceptions that need an answer or a person, or keep jobs from starting, by entry of the playbook."
    yield _labelled("perdure_open_exceptions", text, ("type", "state"), found.open_exceptions)
    text = "Components that are suspected now, by tier."
    suspects = dict.fromkeys(USUAL_SUSPECTS, 0) | dict(found.suspects)
    yield _labelled("perdure_suspects", text, ("tier",), suspects)
    yield GaugeMetricFamily("perdure_journal_bytes", "Size of the journal's database.", found.journal_bytes)


def _labelled(
    name: str, text: str, labels: Sequence[str], values: Mapping[str, float] | Mapping[tuple[str, str], float]
) -> GaugeMetricFamily:
    """A gauge with a value for each key, which holds the values of its labels."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric([key] if isinstance(key, str) else key, value)
    return family
