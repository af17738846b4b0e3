"""How fast the simulator is, and how much memory it takes: python benchmarks/simulator.py [--large]

Traces are drawn as `perdure trace generate` draws them, like Philly's, with failed attempts. Drawing or reading them is
not counted. Each line is of a process of its own: the median of three replays, after a small one for which the loop is
compiled, or loaded from where an earlier run left it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from statistics import median

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.failures import model_named
from perdure.simulation.retries import retry_named
from perdure.simulation.simulate import simulate
from perdure.traces.generate import generate

PHILLY = "321x2+231x8/20"
COMPILED = [
    "fifo",
    "fjf",
    "sjf",
    "philly",
    "capacity",
    "drf",
    "srtf",
    "srsf",
    "las-2d",
    "gittins-2d",
    "easy",
    "conservative",
    "tetris",
    "maxmin",
]
LOADS = 0.7, 1.0
REPLAYS = 3


def measure(jobs: int, spec: str, load: float, policy: str, placement: str, retry: str) -> None:
    """Print one line. Attempts fail as recorded; asked about retries, as in Philly and for faults of nodes."""
    cluster = Cluster.parse(spec)
    started = time.process_time()
    replay(generate(300, cluster, load, np.random.default_rng(0)), cluster, policy, placement, retry)
    loaded = time.process_time() - started
    table = generate(jobs, cluster, load, np.random.default_rng(0))
    replays = [replay(table, cluster, policy, placement, retry) for _ in range(REPLAYS if jobs <= 100_000 else 1)]
    seconds, events = median(each[0] for each in replays), replays[0][1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{jobs:9,d} jobs {cluster.total_gpus:5d} GPUs load {load} {policy:12s} {placement:8s} {retry:9s}"
        f"{seconds:7.2f} s CPU {events / seconds:11,.0f} events/s  peak {peak:5d} MiB  ready in {loaded:.1f} s CPU",
        flush=True,
    )


def replay(table: JobTable, cluster: Cluster, policy: str, placement: str, retry: str) -> tuple[float, int]:
    """Seconds of processor time, and events."""
    failures = model_named("recorded" if retry == "recorded" else "philly+nodes")(table, 0)
    faults = failures.node_faults(0)
    started = time.process_time()
    hook = retry_named(retry)(failures, 0)
    found = simulate(failures.table, cluster, policy, placement, hook, engine="compiled", faults=faults)
    return time.process_time() - started, found.events


def cases() -> list[tuple[object, ...]]:
    """What `measure` is called with."""
    if "--large" in sys.argv:
        return [(1_000_000, "812x8", 0.8, policy, "best-fit", "recorded") for policy in COMPILED]
    many = [
        (100_000, PHILLY, load, policy, placement, "recorded")
        for load in LOADS
        for placement in ("best-fit", "ladder")
        for policy in COMPILED
    ]
    asked = [
        (100_000, PHILLY, load, policy, "best-fit", retry)
        for load in LOADS
        for policy in ("fifo", "sjf", "philly", "las-2d")
        for retry in ("always:3", "oracle", "service")
    ]
    return [(5_000, "64x8", 0.8, "las-2d", "count", "recorded"), *many, *asked]


def main() -> None:
    if len(sys.argv) == 7:
        jobs, spec, load, policy, placement, retry = sys.argv[1:]
        measure(int(jobs), spec, float(load), policy, placement, retry)
        return
    for case in cases():
        subprocess.run([sys.executable, __file__, *map(str, case)], check=True)


if __name__ == "__main__":
    main()
