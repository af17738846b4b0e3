"""Two published studies as one call each: what smart retries save, and which delay comes of scattered GPUs.

Both draw traces that look like Philly's, since neither paper's own is public with its failures and start times. What
the papers print stands beside our figures, and is marked as published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation.delays import SIZES, delays, quotas_by_demand
from perdure.simulation.failures import Failures, Nature, philly
from perdure.simulation.metrics import Metrics, interval, summary
from perdure.simulation.result import Result
from perdure.simulation.retries import CLASSIFIER, retry_named
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import at_load
from perdure.traces.generate import generate

FULL, PREDICTED, ORACLE, NEVER = "recorded", "predicted", "oracle", "never"
RETRIES = (FULL, PREDICTED, ORACLE, NEVER)
POLICIES = ("sjf", "las-2d", "gittins-2d")
FAILING = 0.27
"""Share of jobs that fail at least once: with it and the failure table's reasons, three of four jobs pass in the end
under full retry, as published."""

PUBLISHED_RETRY: Mapping[str, Any] = {
    "source": "published: T. Jung et al., Sibylla, USENIX ATC 2022; paper and talk",
    "setting": "published: a Philly trace on 200 nodes with 8 GPUs each",
    "jct_saved": {"sjf": 0.154, "las-2d": 0.065, "gittins-2d": 0.065},  # predicted against full retry
    "jct_over_oracle": 0.010,  # at most
    "success_rate_full": 0.7504,
    "success_rate_lost": 0.0006,  # predicted against full retry
}
PUBLISHED_DELAY: Mapping[str, Any] = {
    "source": "published: M. Jeon et al., USENIX ATC 2019, table 2",
    "fragmentation_share": {"2-4": 0.594, "5-8": 0.742, ">8": 0.979},
}
_A_WAIT_S = 60.0
Progress = Callable[[int, int], None]
"""``progress(done, runs)``, told after each simulation."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean over the seeds that have a value, and its bootstrap interval at 95 %; 0 where no seed has one."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        there = [value for value in values if not np.isnan(value)] or [0.0]
        return cls(float(np.mean(there)), *interval(there, Generator(Philox(key=0))))


@dataclass(frozen=True, slots=True)
class RetryFigures:
    """One policy with one way of retrying, at one load.

    `jct_saved` is 1 minus the mean JCT over that under full retry, `jct_over_oracle` the mean JCT over that of the
    oracle minus 1; each over the jobs that end the same way under both. `success_lost` is full retry's success rate
    minus this one.
    """

    load: float
    policy: str
    retry: str
    jct_s: Estimate
    wait_s: Estimate
    jct_saved: Estimate
    jct_over_oracle: Estimate
    success_rate: Estimate
    success_lost: Estimate
    wasted_gpu_h: Estimate
    utilisation: Estimate


@dataclass(frozen=True, slots=True)
class RetryStudy:
    """What `retry` found, and with which jobs."""

    jobs: int
    cluster: str
    seeds: int
    classifier: tuple[float, float]  # its rates of true and false positives
    failing: float  # share of jobs that fail at least once
    gpu_time: Mapping[str, float]  # share of each nature of attempt in the GPU time of full retry
    figures: tuple[RetryFigures, ...]
    published: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DelayFigures:
    """Jobs of one size: how long they waited, and why, as shares of all their waiting.

    `fragmentation_share` is fragmentation's share of fair-share and fragmentation delay alone. `fragmented_jobs` counts
    jobs instead of seconds: of those that waited for more than a minute, the share for which fragmentation took more
    of the wait than its virtual cluster's quota did.
    """

    gpus: str
    jobs: int  # of all seeds
    wait_s: Estimate
    fair_share: Estimate
    borrowed: Estimate
    fragmentation: Estimate
    fragmentation_share: Estimate
    fragmented_jobs: Estimate


@dataclass(frozen=True, slots=True)
class DelayStudy:
    """What `delay` found, and with which jobs."""

    jobs: int
    cluster: str
    rack_nodes: int
    load: float
    seeds: int
    utilisation: Estimate
    figures: tuple[DelayFigures, ...]
    published: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def retry(
    n_jobs: int = 50_000,
    loads: Sequence[float] = (0.9,),
    seeds: int = 3,
    nodes: int = 200,
    failing: float = FAILING,
    classifier: tuple[float, float] = CLASSIFIER,
    policies: Sequence[str] = POLICIES,
    progress: Progress = lambda done, runs: None,  # noqa: ARG005
) -> RetryStudy:
    """Sibylla's experiment: what a classifier of failures saves against retrying every one.

    Jobs are drawn like Philly's, and a share `failing` of them fails for the reasons, as often and after the times of
    Philly's failure table: most for good, however often they are tried; some heal (MPI errors, CUDA and ECC faults,
    preemptions). A load is the GPU time of all attempts over the GPU time of `nodes` nodes with 8 GPUs until the last
    submit. Full retry runs every attempt that was drawn; the others stop where they see no use. A retry starts from
    the beginning, and joins the queue as a new arrival. GPUs are counted, not placed. With few jobs the trace is short
    against its longest jobs, and hardly anybody waits whatever the load: 50,000 make two weeks and a half.

    Raises `InputError` for numbers out of their range, and `ConfigError` for an unknown policy.
    """
    cluster = Cluster.parse(f"{nodes}x8")
    runs = len(loads) * seeds * len(policies) * len(RETRIES)
    done, found, mixes = 0, [], []
    for load in loads:
        by_case: dict[tuple[str, str], list[dict[str, float]]] = {}
        for seed in range(seeds):
            failures = _failing(n_jobs, cluster, load, failing, seed)
            mixes.append(failures.gpu_time())
            for policy in policies:
                results = {}
                for name in RETRIES:
                    results[name] = _retried(failures, cluster, policy, name, classifier, seed)
                    progress(done := done + 1, runs)
                for name, row in _compared(failures.table, results).items():
                    by_case.setdefault((policy, name), []).append(row)
        found += [RetryFigures(load, *case, **_estimates(rows)) for case, rows in by_case.items()]
    gpu_time = {nature.name.lower(): float(np.mean([mix[nature] for mix in mixes])) for nature in Nature}
    size = f"{nodes}x8"
    return RetryStudy(n_jobs, size, seeds, classifier, failing, gpu_time, tuple(found), PUBLISHED_RETRY)


def delay(
    n_jobs: int = 20_000,
    load: float = 0.5,
    seeds: int = 3,
    cluster: str = "80x2+58x8",
    rack_nodes: int = 24,
    progress: Progress = lambda done, runs: None,  # noqa: ARG005
) -> DelayStudy:
    """Philly's study of delays: scattered GPUs are the more to blame, the wider the job.

    Jobs are drawn like Philly's, without failures, onto a cluster of the mix of theirs but a quarter of its size (so
    that fewer jobs fill it for weeks), under its scheduler and its ladder of localities. Quotas follow the demand of
    each virtual cluster; how the paper's were set is not public, nor are its racks, for which `rack_nodes` consecutive
    nodes stand. A job beyond its quota is charged to fragmentation while enough GPUs for it are free, since this
    scheduler lends them. Where arrivals come in bursts, as these do, most seconds of waiting are spent in a few
    crowded hours in which no GPU is free at all, and the more so at higher loads.

    Raises `InputError` for numbers out of their range.
    """
    nodes = Cluster.parse(cluster, rack_nodes)
    utilisation, rows = [], []
    for seed in range(seeds):
        table = generate(n_jobs, nodes, load, _stream(seed), failures=False)
        quotas = quotas_by_demand(table, nodes.total_gpus)
        options = PolicyOptions(quotas=quotas)
        result = simulate(table, nodes, "philly", "ladder", seed=seed, options=options, spans=True)
        rows.append(_by_size(table, result, quotas))
        utilisation.append(result.utilisation)
        progress(seed + 1, seeds)
    figures = []
    for name, _, _ in SIZES:
        of_size = [row[name] for row in rows]
        figures.append(DelayFigures(name, int(sum(row["jobs"] for row in of_size)), **_estimates(of_size, "jobs")))
    spread = Estimate.of(utilisation)
    return DelayStudy(n_jobs, cluster, rack_nodes, load, seeds, spread, tuple(figures), PUBLISHED_DELAY)


def _failing(n_jobs: int, cluster: Cluster, load: float, failing: float, seed: int) -> Failures:
    table = generate(n_jobs, cluster, load, _stream(seed), failures=False)
    undecided = replace(table, ending=np.zeros(n_jobs, np.int8))
    failures = philly(undecided, seed, failing)
    return replace(failures, table=at_load(failures.table, cluster, load))


def _retried(
    failures: Failures, cluster: Cluster, policy: str, name: str, classifier: tuple[float, float], seed: int
) -> tuple[Result, Metrics]:
    full_name = f"{name}:{classifier[0]},{classifier[1]}" if name == PREDICTED else name
    hook = retry_named(full_name)(failures, seed)
    result = simulate(failures.table, cluster, policy, retry=hook, seed=seed)
    return result, summary(failures.table, result)


def _compared(table: JobTable, results: Mapping[str, tuple[Result, Metrics]]) -> dict[str, dict[str, float]]:
    full, oracle = results[FULL], results[ORACLE]
    return {
        name: {
            "jct_s": metrics.jct_s.mean,
            "wait_s": metrics.wait_s.mean,
            "jct_saved": 1 - _jct_ratio(table, result, full[0]),
            "jct_over_oracle": _jct_ratio(table, result, oracle[0]) - 1,
            "success_rate": metrics.success_rate,
            "success_lost": full[1].success_rate - metrics.success_rate,
            "wasted_gpu_h": metrics.wasted_gpu_h,
            "utilisation": metrics.utilisation,
        }
        for name, (result, metrics) in results.items()
    }


def _jct_ratio(table: JobTable, result: Result, other: Result) -> float:
    """Mean JCT over the other's, of the jobs that end the same way under both; 1 where there are none."""
    same = result.passed == other.passed
    mine, theirs = ((each.end_s - table.submit_s)[same].sum() for each in (result, other))
    return float(mine / theirs) if theirs else 1.0


def _by_size(table: JobTable, result: Result, quotas: Mapping[str, float]) -> dict[str, dict[str, float]]:
    split = delays(table, result, quotas, lends=True)
    wait_s = result.start_s - table.submit_s
    found = {}
    for name, least, most in SIZES:
        rows = (table.gpus >= least) & (table.gpus <= most)
        parts = split.fair_share_s, split.borrowed_s, split.fragmentation_s
        fair, borrowed, scattered = (float(part[rows].sum()) for part in parts)
        found[name] = {
            "jobs": float(rows.sum()),
            "wait_s": _mean(wait_s[rows]),
            "fair_share": _share(fair, borrowed, scattered),
            "borrowed": _share(borrowed, fair, scattered),
            "fragmentation": _share(scattered, fair, borrowed),
            "fragmentation_share": _share(scattered, fair),
            "fragmented_jobs": _mean((split.fragmentation_s > split.fair_share_s)[rows & (wait_s > _A_WAIT_S)]),
        }
    return found


def _share(part: float, *others: float) -> float:
    """What `part` is of the sum of all; NaN where there is nothing to share."""
    whole = part + sum(others)
    return part / whole if whole else np.nan


def _mean(values: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else np.nan


def _estimates(rows: Sequence[Mapping[str, float]], *but: str) -> dict[str, Any]:
    return {name: Estimate.of([row[name] for row in rows]) for name in rows[0] if name not in but}


def _stream(seed: int) -> Generator:
    return Generator(Philox(key=[seed, 0]))
