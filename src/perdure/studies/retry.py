"""Sibylla's experiment again: what a classifier of failures saves against retrying every one.

Source: T. Kim et al., "Sibylla: To Retry or Not To Retry on Deep Learning Job Failure", USENIX ATC 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.model.table import Attempts, JobTable
from perdure.scheduling.las import LeastAttained
from perdure.scheduling.policies import policy_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.executors.processes import spread
from perdure.simulation.failures import Failures, Nature, philly
from perdure.simulation.metrics import Metrics, summary
from perdure.simulation.result import Result
from perdure.simulation.retries import CLASSIFIER, retry_named
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import at_load
from perdure.studies.estimate import Estimate, Progress, estimates, stream
from perdure.traces.failure_table import SHARE_FAILING
from perdure.traces.generate import generate

FULL, PREDICTED, ORACLE, NEVER = "recorded", "predicted", "oracle", "never"
RETRIES = (FULL, PREDICTED, ORACLE, NEVER)
POLICIES = ("sjf", "las-2d", "gittins-2d")
TRIES = 4  # of one job: Philly retries a failure up to three times

PUBLISHED: Mapping[str, Any] = {
    "source": "published: T. Kim et al., Sibylla, USENIX ATC 2022; paper and talk",
    "setting": "published: a Philly trace on 200 nodes with 8 GPUs each",
    "jct_saved": {"sjf": 0.154, "las-2d": 0.065, "gittins-2d": 0.065},  # predicted against full retry
    "jct_over_oracle": 0.010,  # at most
    "success_rate_full": 0.7504,
    "success_rate_lost": 0.0006,  # predicted against full retry
}


@dataclass(frozen=True, slots=True)
class RetryFigures:
    """One policy with one way of retrying, at one load.

    `jct_saved` is 1 minus the mean JCT over that under full retry, `jct_over_oracle` the mean JCT over that of the
    oracle minus 1; each over the jobs that end the same way under both. Of `jct_saved`, `saved_running` is the running
    time of those jobs that was not repeated, and `saved_waiting` the rest. `jct_saved_passed` is counted over jobs
    that pass under both. `success_lost` is full retry's success rate minus this one.
    """

    load: float
    policy: str
    retry: str
    jct_s: Estimate
    wait_s: Estimate
    jct_saved: Estimate
    saved_running: Estimate
    saved_waiting: Estimate
    jct_saved_passed: Estimate
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
    repeated: float  # share that retries of jobs that fail for good have in all running time of full retry
    figures: tuple[RetryFigures, ...]
    published: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def retry(
    n_jobs: int = 50_000,
    loads: Sequence[float] = (0.9,),
    seeds: int = 10,
    nodes: int = 200,
    failing: float = SHARE_FAILING,
    classifier: tuple[float, float] = CLASSIFIER,
    policies: Sequence[str] = POLICIES,
    forgets_service: bool = False,
    progress: Progress = lambda done, runs: None,  # noqa: ARG005
    workers: int = 1,
) -> RetryStudy:
    """Sibylla's experiment, on drawn jobs.

    Jobs are drawn like Philly's, and a share `failing` of them fails for the reasons, as often and after the times of
    Philly's failure table: most for good, however often they are tried; some heal (MPI errors, CUDA and ECC faults,
    preemptions). A job is tried four times at most. A load is the GPU time of all these attempts over the GPU time of
    `nodes` nodes with 8 GPUs until the last submit. Full retry runs them all; the others stop where they see no use. A
    retry starts from the beginning, and joins the queue as a new arrival; with `forgets_service` also in the eyes of
    policies that go by attained service. GPUs are counted, not placed. With few jobs the trace is short against its
    longest jobs, and hardly anybody waits whatever the load: 50,000 make two weeks and a half.

    Loads, policies and seeds are spread over this many processes as `workers` says. Raises `InputError` for numbers out
    of their range, and `ConfigError` for an unknown policy.
    """
    case = _RetryCase(n_jobs, Cluster.parse(f"{nodes}x8"), failing, classifier, forgets_service)
    parts = list(product(loads, policies, range(seeds)))
    found: dict[int, _Rows] = {}
    for place, rows in spread(_of_part, (case,), parts, workers):
        found[place] = rows
        progress(len(found) * len(RETRIES), len(parts) * len(RETRIES))
    drawn = [found[place].drawn for place, (_, policy, _) in enumerate(parts) if policy == policies[0]]
    figures = []
    for load, policy in product(loads, policies):
        places = [place for place, part in enumerate(parts) if part[:2] == (load, policy)]
        for how in RETRIES:
            figures.append(RetryFigures(load, policy, how, **estimates([found[each].by_retry[how] for each in places])))
    gpu_time = {nature.name.lower(): float(np.mean([mix[nature] for mix, _ in drawn])) for nature in Nature}
    repeated = float(np.mean([share for _, share in drawn]))
    said = n_jobs, f"{nodes}x8", seeds, classifier, failing, gpu_time, repeated
    return RetryStudy(*said, tuple(figures), PUBLISHED)


class _RetryCase(NamedTuple):
    """What all parts of the study share; see `retry`."""

    n_jobs: int
    cluster: Cluster
    failing: float
    classifier: tuple[float, float]
    forgets_service: bool


class _Rows(NamedTuple):
    """What one policy made of the jobs of one seed."""

    drawn: tuple[Mapping[Nature, float], float]  # of the jobs: `RetryStudy.gpu_time` and `repeated`
    by_retry: dict[str, dict[str, float]]


def _of_part(case: _RetryCase, part: tuple[float, str, int]) -> _Rows:
    load, name, seed = part
    failures = _failing(case.n_jobs, case.cluster, load, case.failing, seed)
    policy = _policy(name, case.forgets_service)
    results = {how: _retried(failures, case.cluster, policy, how, case.classifier, seed) for how in RETRIES}
    return _Rows((failures.gpu_time(), _repeated(failures)), _compared(failures.table, results))


def at_most(failures: Failures, tries: int) -> Failures:
    """The same failures where no job is tried more often; one that would have healed later fails for good."""
    recorded = failures.table.attempts
    assert recorded is not None
    counts = np.diff(recorded.first)
    owner = np.repeat(np.arange(len(counts)), counts)
    kept = np.arange(len(owner)) - recorded.first[:-1][owner] < tries
    first = np.concatenate([[0], np.cumsum(np.minimum(counts, tries))])
    left = Attempts(first, recorded.duration_s[kept], recorded.passed[kept])
    nature = np.where((counts > tries)[owner], Nature.DETERMINISTIC, failures.nature)[kept].astype(np.int8)
    duration_s = _sums(owner[kept], left.duration_s, len(counts))
    table = replace(failures.table, attempts=left, duration_s=duration_s)
    return Failures(table, nature, failures.causes[kept])


def _failing(n_jobs: int, cluster: Cluster, load: float, failing: float, seed: int) -> Failures:
    table = generate(n_jobs, cluster, load, stream(seed), failures=False)
    undecided = replace(table, ending=np.zeros(n_jobs, np.int8))
    failures = at_most(philly(undecided, seed, failing), TRIES)
    return replace(failures, table=at_load(failures.table, cluster, load))


def _repeated(failures: Failures) -> float:
    tries = failures.table.attempts
    assert tries is not None
    retried = np.ones(len(tries.duration_s), np.bool_)
    retried[tries.first[:-1]] = False
    for_good = failures.nature == Nature.DETERMINISTIC
    return float(tries.duration_s[retried & for_good].sum() / tries.duration_s.sum())


def _sums(owner: NDArray[np.int64], values: NDArray[np.float64], owners: int) -> NDArray[np.float64]:
    return np.bincount(owner, values, owners).astype(np.float64)


def _policy(name: str, forgets_service: bool) -> Policy:
    policy = policy_named(name)
    return replace(policy, resets_on_retry=forgets_service) if isinstance(policy, LeastAttained) else policy


def _retried(
    failures: Failures, cluster: Cluster, policy: Policy, how: str, classifier: tuple[float, float], seed: int
) -> tuple[Result, Metrics]:
    full_name = f"{how}:{classifier[0]},{classifier[1]}" if how == PREDICTED else how
    hook = retry_named(full_name)(failures, seed)
    result = simulate(failures.table, cluster, policy, retry=hook, seed=seed)
    return result, summary(failures.table, result)


def _compared(table: JobTable, results: Mapping[str, tuple[Result, Metrics]]) -> dict[str, dict[str, float]]:
    (full, full_metrics), (oracle, _) = results[FULL], results[ORACLE]
    return {
        how: {
            "jct_s": metrics.jct_s.mean,
            "wait_s": metrics.wait_s.mean,
            **_saved(table, result, full),
            "jct_over_oracle": -_saved(table, result, oracle)["jct_saved"],
            "success_rate": metrics.success_rate,
            "success_lost": full_metrics.success_rate - metrics.success_rate,
            "wasted_gpu_h": metrics.wasted_gpu_h,
            "utilisation": metrics.utilisation,
        }
        for how, (result, metrics) in results.items()
    }


def _saved(table: JobTable, result: Result, other: Result) -> dict[str, float]:
    """What is saved against the other, over the jobs that end the same way under both, as shares of their JCT there."""
    same = result.passed == other.passed
    passed = same & result.passed
    jct_s, other_jct_s = (each.end_s - table.submit_s for each in (result, other))
    ran_s, other_ran_s = (_sums(each.attempts.job, each.attempts.ran_s, len(table)) for each in (result, other))
    saved, running = _share(jct_s, other_jct_s, same), _share(ran_s, other_ran_s, same, other_jct_s)
    return {
        "jct_saved": saved,
        "saved_running": running,
        "saved_waiting": saved - running,
        "jct_saved_passed": _share(jct_s, other_jct_s, passed),
    }


def _share(
    mine_s: NDArray[np.float64],
    theirs_s: NDArray[np.float64],
    rows: NDArray[np.bool_],
    of_s: NDArray[np.float64] | None = None,
) -> float:
    """How much less mine is than theirs, as a share of `of_s`, or of theirs; 0 of nothing."""
    whole = float((theirs_s if of_s is None else of_s)[rows].sum())
    return float((theirs_s - mine_s)[rows].sum()) / whole if whole else 0.0
