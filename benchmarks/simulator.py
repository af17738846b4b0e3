"""How fast the simulator is, and how much memory it takes: python benchmarks/simulator.py [--large]

Jobs are like Philly's: gangs of 1 to 32, log-normal running times. Reading them is not counted. Each figure is of a
process of its own; the loop is compiled, or loaded from where an earlier run left it, by a small run before.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.simulate import simulate

MIB_KIB = 1024
CASES = [
    (100_000, "321x2+231x8", "fifo sjf fjf capacity drf srtf las-2d gittins-2d", "best-fit"),
    (5_000, "64x8", "las-2d", "count"),
]
LARGE = [(1_000_000, "812x8", "fifo sjf las-2d", "best-fit")]


def philly_like(jobs: int, gpus: int, load: float = 0.8) -> JobTable:
    """Jobs that keep `gpus` busy for the share `load` of the time."""
    rng = np.random.default_rng(0)
    width = rng.choice([1, 2, 4, 8, 16, 32], jobs, p=[0.70, 0.08, 0.08, 0.09, 0.03, 0.02])
    duration = np.round(rng.lognormal(np.log(3000), 1.9, jobs)).clip(1, 20 * 86_400)
    submit = np.floor(np.sort(rng.uniform(0, (width * duration).sum() / gpus / load, jobs)))
    names = rng.integers(0, 14, jobs).astype(str)
    return JobTable(np.arange(jobs).astype(str), submit, width, duration, vc=names, user=names)


def measure(jobs: int, spec: str, policy: str, placement: str) -> None:
    """Print one figure."""
    cluster = Cluster.parse(spec)
    started = time.perf_counter()
    simulate(philly_like(300, cluster.total_gpus), cluster, policy, placement, engine="compiled")
    loaded = time.perf_counter() - started
    table = philly_like(jobs, cluster.total_gpus)
    started = time.process_time()
    found = simulate(table, cluster, policy, placement, engine="compiled")
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB_KIB
    print(
        f"{jobs:9,d} jobs {cluster.total_gpus:5d} GPUs {policy:10s} {placement:8s} {seconds:7.2f} s CPU "
        f"{found.events / seconds:11,.0f} events/s  peak {peak:5.0f} MiB  compiled or loaded in {loaded:.2f} s"
    )


def main() -> None:
    if len(sys.argv) == 5:
        measure(int(sys.argv[1]), *sys.argv[2:])
        return
    for jobs, spec, policies, placement in CASES + (LARGE if "--large" in sys.argv else []):
        for policy in policies.split():
            subprocess.run([sys.executable, __file__, str(jobs), spec, policy, placement], check=True)


if __name__ == "__main__":
    main()
