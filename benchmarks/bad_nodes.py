"""What ways of retrying make of failures that are bound to a node, where jobs may come back to it before its repair.

Run: python benchmarks/bad_nodes.py [N_JOBS] [SEEDS]. Prints Markdown.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np

from perdure.model.cluster import Cluster
from perdure.simulation.failures import Nature, model_named
from perdure.simulation.metrics import summary
from perdure.simulation.retries import retry_named
from perdure.simulation.simulate import simulate
from perdure.simulation.sweep import at_load
from perdure.traces.generate import generate

N_JOBS, SEEDS = 50_000, 3
CLUSTER, LOAD, FAILURES = "200x8", 0.9, "philly+nodes"
PLACEMENTS = ("best-fit", "consolidate")
RETRIES = ("never", "always:3", "predicted", "service", "oracle")
COLUMNS = ("placement", "retry", "passed", "lost to bad nodes", "attempts a fault", "wasted, GPU-h", "JCT, h", "CPU, s")


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]]
    n_jobs, seeds = (*numbers, *(N_JOBS, SEEDS)[len(numbers) :])
    cluster = Cluster.parse(CLUSTER)
    print(f"Made by `python benchmarks/bad_nodes.py {n_jobs} {seeds}`: {n_jobs} drawn jobs, {seeds} seeds, {CLUSTER},")
    print(f"load {LOAD}, failures {FAILURES}, policy sjf; means over the seeds.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for placement in PLACEMENTS:
        for retry in RETRIES:
            rows = [measure(n_jobs, cluster, placement, retry, seed) for seed in range(seeds)]
            passed, lost, tries, wasted, jct_h, cpu_s = np.mean(rows, axis=0)
            print(f"| {placement} | {retry} | {passed:.2%} | {lost:.3%} | {tries:.2f} | {wasted:,.0f} "
                  f"| {jct_h:.2f} | {cpu_s:.2f} |")  # fmt: skip


def measure(n_jobs: int, cluster: Cluster, placement: str, retry: str, seed: int) -> tuple[float, ...]:
    table = generate(n_jobs, cluster, LOAD, np.random.default_rng(seed), failures=False)
    failures = model_named(FAILURES)(replace(table, ending=np.zeros(n_jobs, np.int8)), seed)
    table, faults = at_load(failures.table, cluster, LOAD), failures.node_faults(seed)
    hook = retry_named(retry)(replace(failures, table=table), seed)
    began = time.process_time()
    found = simulate(table, cluster, "sjf", placement, hook, seed, faults=faults)
    cpu_s = time.process_time() - began
    figures, record = summary(table, found), found.attempts.record
    of_node = failures.nature[record] == Nature.NODE_BOUND
    ended_by = np.zeros(n_jobs, np.bool_)
    ended_by[found.attempts.job] = of_node  # a job's last attempt stays
    return (
        figures.success_rate, float(ended_by.mean()), of_node.sum() / max(1, len(np.unique(record[of_node]))),
        figures.wasted_gpu_h, figures.jct_s.mean / 3600, cpu_s,
    )  # fmt: skip


if __name__ == "__main__":
    main()
