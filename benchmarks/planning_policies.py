"""Runs whole workloads under policies that plan, beside what was published: CPU seconds and mean completion times.

    python -m benchmarks.planning_policies DATA [POLICY ...]
    python -m benchmarks.planning_policies DATA many        # AlloX on 5,000 jobs
    python -m benchmarks.planning_policies DATA wide        # Sia on 2,000 GPUs
    python -m benchmarks.planning_policies DATA sia         # Sia's 160 jobs on 64 GPUs
    python -m benchmarks.planning_policies DATA pipelines   # the same with 16 large models among them
    python -m benchmarks.planning_policies DATA auction     # Themis' auction, and fits of the throughput model
    python -m benchmarks.planning_policies DATA rounds      # rounds a second of each policy on 64 GPUs
    python -m benchmarks.planning_policies DATA twice       # rounds a second of Sia and Pollux on 128 GPUs

DATA holds `golden-schedulers`, `gpu-profiles` and `traces`. Set ``OPENBLAS_NUM_THREADS=1``: waiting threads cost time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs
from perdure.scheduling.elastic import ElasticView, Plan
from perdure.scheduling.elastic_policies import ELASTIC, elastic_named
from perdure.scheduling.sia_policy import Sia
from perdure.scheduling.themis import partial_allocation
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.simulation.elastic_metrics import ElasticMetrics
from perdure.throughput.application import applications, rated_applications
from perdure.throughput.colocation import colocation
from perdure.throughput.fit import StepTimes, fit
from perdure.throughput.pipeline import PUBLISHED as PUBLISHED_PIPELINES
from perdure.throughput.traits import POLLUX, PUBLISHED, Traits
from perdure.traces.gavel import read_steps
from perdure.traces.profiles import read_adaptive, read_pairs, read_profiles, read_rates

GAVEL: Mapping[str, str] = {
    "gavel-fifo-blind": "g200-fifo",
    "gavel-las-blind": "g200-max_min_fairness",
    "gavel-las": "g200-max_min_fairness_perf",
    "gavel-ftf": "g200-finish_time_fairness_perf",
    "gavel-makespan": "g200-min_total_duration_perf",
    "allox": "g200-allox",
    "gavel-gandiva": "g200-gandiva",
}
"""Our names of what Gavel's simulator calls so."""
POLLUX_POLICIES = ("tiresias", "optimus", "pollux")
MANY_JOBS = 5000  # drawn from Gavel's, of which so many are not given; one comes in `EACH_S` seconds
EACH_S = 4500.0
WINDOW = 200  # jobs that Gavel's averages are of; later ones only keep the cluster busy


def gavel_jobs(data: Path, policy: str) -> ElasticResult:
    """Gavel's generated jobs on 12 GPUs of each of three types, under a policy."""
    jobs = read_steps(data / "golden-schedulers" / "gavel" / "g200.trace.gz")
    jobs = _some(jobs, np.arange(1, len(jobs)))  # its generator wrote the first job twice
    return _rated(data, policy, jobs, 12)


def many_jobs(data: Path, policy: str) -> ElasticResult:
    """`MANY_JOBS` of these on 36 GPUs of each type."""
    jobs, rng = read_steps(data / "golden-schedulers" / "gavel" / "g200.trace.gz"), np.random.default_rng(0)
    drawn = _some(jobs, rng.integers(1, len(jobs), MANY_JOBS))
    return _rated(data, policy, replace(drawn, submit_s=np.cumsum(rng.exponential(EACH_S, MANY_JOBS))), 36)


def _some(jobs: AdaptiveJobs, rows: NDArray[np.int64]) -> AdaptiveJobs:
    kept = {name: getattr(jobs, name)[rows] for name in ("job_id", "submit_s", "application", "gpus", "batch", "steps")}
    return replace(jobs, **kept)


def _rated(data: Path, policy: str, jobs: AdaptiveJobs, gpus: int) -> ElasticResult:
    known = rated_applications(read_rates(data / "gpu-profiles" / "gavel"), jobs.application.tolist())
    free = dict.fromkeys(known, Traits(0.0, 0.0))
    measured = read_pairs(data / "gpu-profiles" / "gavel")
    pairs = None if measured is None else colocation(measured, known)
    cluster = Cluster.parse(f"{gpus}x1:v100 + {gpus}x1:p100 + {gpus}x1:k80")
    return replay_elastic(jobs, cluster, elastic_named(policy), known, free, pairs=pairs)


def pollux_jobs(data: Path, policy: str) -> ElasticResult:
    """Pollux's sixth workload on 16 nodes of 4 T4s, under a policy."""
    jobs = read_adaptive(data / "golden-schedulers" / "pollux" / "workload-6.csv")
    known = applications(*read_profiles(data / "gpu-profiles" / "pollux"), jobs.application.tolist())
    cluster = Cluster.parse("16x4:aws")
    return replay_elastic(jobs, cluster, elastic_named(policy), known, POLLUX, whole_seconds=True)


@dataclass(frozen=True, slots=True)
class TimedSia(Sia):
    """Notes the CPU seconds of each round."""

    taken_s: list[float] = field(default_factory=list)

    def plan(self, view: ElasticView) -> Plan:
        began_s = time.process_time()
        plan = Sia.plan(self, view)
        self.taken_s.append(time.process_time() - began_s)
        return plan


def wide_cluster(data: Path) -> None:
    """1,000 jobs of Sia's six workloads, all within ten minutes, on 2,000 GPUs of three types."""
    where = data / "traces" / "sia_workloads" / "saturn.csv.gz"
    parts, count = [read_adaptive(where, number) for number in range(1, 7)] * 2, 1000
    application, gpus, batch = (
        np.concatenate([getattr(part, name) for part in parts])[:count] for name in ("application", "gpus", "batch")
    )
    submit_s = np.sort(np.random.default_rng(0).uniform(0, 600, count))
    jobs = AdaptiveJobs(np.arange(count).astype(str), submit_s, application, gpus, batch)
    known = applications(*read_profiles(data / "gpu-profiles" / "sia"), application.tolist())
    cluster, policy = Cluster.parse("150x4:aws + 75x8:dgx-ext + 100x8:rtx"), TimedSia()
    began_s = time.process_time()
    found = replay_elastic(jobs, cluster, policy, known, PUBLISHED)
    taken_s, rounds = time.process_time() - began_s, np.array(policy.taken_s)
    print(
        f"sia, {count} jobs: {found.rounds} rounds, {taken_s:.1f} CPU s; a round {rounds.max():.2f} at most, ", end=""
    )
    print(f"{rounds.mean():.3f} in the mean, {(rounds > 1).sum()} above 1 s")


def sia_jobs(data: Path, *, pipelines: bool = False) -> None:
    """Sia's first workload of Saturn on its 64 GPUs; with `pipelines` every tenth job is a large model instead."""
    jobs = read_adaptive(data / "traces" / "sia_workloads" / "saturn.csv.gz", 1)
    large = (np.arange(len(jobs)) % 10 == 0) & pipelines
    jobs = replace(jobs, application=np.where(large, "gpt_pmp", jobs.application))
    known = applications(*read_profiles(data / "gpu-profiles" / "sia"), jobs.application.tolist())
    began_s = time.process_time()
    result = replay_elastic(jobs, Cluster.parse("6x4:aws+2x8:dgx-ext+3x8:rtx"), Sia(), known, PUBLISHED)
    taken_s, found = time.process_time() - began_s, ElasticMetrics.of(result)
    print(
        f"sia, {len(jobs)} jobs, {large.sum()} pipelines: mean {found.jct_mean_s:.1f} s, p99 {found.jct_p99_s:.0f} s, "
        f"longest {found.jct_max_s:.0f} s, makespan {found.makespan_s / 3600:.2f} h, {found.gpu_h:.0f} GPU-hours, "
        f"{found.restarts:.2f} restarts, max rho {found.max_rho:.2f}, Jain {found.jain:.3f}, {result.rounds} rounds, "
        f"{taken_s:.2f} CPU s"
    )
    if pipelines:
        mean_h = [float(result.jct_s[part].mean()) / 3600 for part in (large, ~large)]
        print(f"pipelines {mean_h[0]:.2f} h in the mean, others {mean_h[1]:.2f} h")


def auction(data: Path) -> None:
    """An auction of 256 GPUs among 64 apps with exact payments; a fit of each application's steps on each GPU type."""
    rng, taken_ms = np.random.default_rng(0), list[float]()
    for _ in range(9):
        bids = np.cumsum(-np.sort(-rng.exponential(1.0, (64, 257)), axis=1), axis=1)  # concave
        began_s = time.process_time()
        partial_allocation(bids)
        taken_ms.append(1000 * (time.process_time() - began_s))
    print(f"themis, an auction of 256 GPUs, 64 apps: {np.median(taken_ms):.1f} ms, {max(taken_ms):.1f} at most (CPU)")
    steps, taken_ms = read_profiles(data / "gpu-profiles" / "sia")[0], []
    for name in sorted(set(steps.application.tolist()) - set(PUBLISHED_PIPELINES)):
        for kind in np.unique(steps.gpu_type[steps.application == name]).tolist():
            own = (steps.application == name) & (steps.gpu_type == kind)
            columns = steps.nodes[own], steps.gpus[own], steps.local_batch[own], (steps.step_s - steps.sync_s)[own]
            began_s = time.process_time()
            fit(StepTimes(*columns, steps.step_s[own]))
            taken_ms.append(1000 * (time.process_time() - began_s))
    print(f"{len(taken_ms)} fits: {np.median(taken_ms):.1f} ms, {max(taken_ms):.1f} at most (CPU)")


def rounds_a_second(data: Path) -> None:
    """Of each policy on Pollux's workload, with all of the simulation around it."""
    for policy in ELASTIC:
        if policy == "allox":
            continue  # its jobs have one GPU
        began_s = time.process_time()
        rounds = pollux_jobs(data, policy).rounds
        print(f"{policy}: {rounds} rounds, {rounds / (time.process_time() - began_s):.0f} a CPU second")


def twice(data: Path) -> None:
    """Rounds a second of Sia and Pollux on 128 GPUs: two of Sia's workloads, and Pollux's sixth twice."""
    sia = [read_adaptive(data / "traces" / "sia_workloads" / "saturn.csv.gz", number) for number in (1, 2)]
    one = read_adaptive(data / "golden-schedulers" / "pollux" / "workload-6.csv")
    cases = (
        (Sia(), sia, "12x4:aws+4x8:dgx-ext+6x8:rtx", "sia", PUBLISHED),
        (elastic_named("pollux"), [one, one], "32x4:aws", "pollux", POLLUX),
    )
    for policy, parts, cluster, profiles, traits in cases:
        submit_s = np.concatenate([part.submit_s for part in parts])
        order = np.argsort(submit_s, kind="stable")
        application, gpus, batch = (
            np.concatenate([getattr(part, name) for part in parts])[order] for name in ("application", "gpus", "batch")
        )
        jobs = AdaptiveJobs(np.arange(len(order)).astype(str), submit_s[order], application, gpus, batch)
        known = applications(*read_profiles(data / "gpu-profiles" / profiles), application.tolist())
        began_s = time.process_time()
        rounds = replay_elastic(jobs, Cluster.parse(cluster), policy, known, traits).rounds
        taken_s = time.process_time() - began_s
        print(f"{policy.name}, {len(jobs)} jobs: {rounds} rounds, {taken_s:.1f} CPU s, {rounds / taken_s:.0f} a second")


def golden(data: Path, policy: str) -> float:
    """The mean completion time of a run of Gavel's or Pollux's own simulator, in seconds."""
    where = data / "golden-schedulers"
    if policy in GAVEL:
        return float(json.loads((where / "gavel" / "expected.json").read_text())[GAVEL[policy]]["avg_jct"])
    published = json.loads((where / "pollux" / "expected.json").read_text())["published_avg_jct_s"]
    return float(published[policy]["workload-6"])


def mean_jct_s(data: Path, policy: str) -> float:
    """Ours of the same."""
    if policy in GAVEL:
        return float(gavel_jobs(data, policy).jct_s[:WINDOW].mean())
    return float(pollux_jobs(data, policy).jct_s.mean())


def main() -> None:
    data, *wanted = Path(sys.argv[1]), *sys.argv[2:]
    parts = {"wide": wide_cluster, "sia": sia_jobs, "auction": auction, "rounds": rounds_a_second, "twice": twice}
    if wanted == ["pipelines"]:
        sia_jobs(data, pipelines=True)
        return
    if len(wanted) == 1 and wanted[0] in parts:
        parts[wanted[0]](data)
        return
    if wanted == ["many"]:
        began_s = time.process_time()
        found = many_jobs(data, "allox")
        taken_s = time.process_time() - began_s
        print(f"allox, {MANY_JOBS} jobs: {found.jct_s.mean():.5f} s, {found.rounds} rounds, {taken_s:.1f} CPU s")
        return
    for policy in wanted or (*GAVEL, *POLLUX_POLICIES):
        began_s = time.process_time()
        mean_s, told_s = mean_jct_s(data, policy), golden(data, policy)
        taken_s = time.process_time() - began_s
        print(f"{policy}: {mean_s:.5f} s, told {told_s:.5f} s ({mean_s / told_s - 1:+.2%}), {taken_s:.1f} CPU s")


if __name__ == "__main__":
    main()
