"""How fast the simulator replays a queue of Slurm: python benchmarks/slurm_queue.py TRACE.swf[.gz] [GPUS]

Limits are the true running times times 1 + Exp(1), drawn once, as no such log tells them; jobs are ordered by age and
size, and backfill has its defaults but for a window of four days, beyond which wide jobs would starve. Seconds are of
the processor: the median of five replays, after one for which the loop is compiled or loaded.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.slurm.policy import Slurm
from perdure.scheduling.slurm.settings import BackfillSettings, PrioritySettings, PriorityWeights, SchedulerSettings
from perdure.simulation.simulate import simulate
from perdure.traces.read import read

DAY_S = 86_400.0
REPLAYS = 5
SITE = SchedulerSettings(
    priority=PrioritySettings(weights=PriorityWeights(age=1000, job_size=1000)),
    backfill=BackfillSettings(window_s=4 * DAY_S),
)


def limited(table: JobTable) -> JobTable:
    """The jobs with limits of whole minutes."""
    drawn = table.duration_s * (1 + np.random.default_rng(0).exponential(1.0, len(table)))
    return replace(table, walltime_s=60.0 * np.ceil(np.maximum(drawn, 1.0) / 60.0))


def main() -> None:
    table, gpus = read(Path(sys.argv[1])).table, sys.argv[2] if len(sys.argv) > 2 else "256"
    cluster, policy = Cluster.parse(f"{gpus}x1"), Slurm(SITE)
    for name, jobs in (("limits x (1 + Exp(1))", limited(table)), ("limits as long as the jobs", table)):
        took = []
        for _ in range(REPLAYS + 1):
            began = time.process_time()
            found = simulate(jobs, cluster, policy, engine="compiled")
            took.append(time.process_time() - began)
        seconds, wait_h = median(took[1:]), (found.start_s - jobs.submit_s).mean() / 3600
        print(
            f"{len(jobs):,d} jobs, {gpus} GPUs, {name}: {seconds:.3f} s CPU, {len(jobs) / seconds:,.0f} jobs/s, "
            f"mean wait {wait_h:.1f} h",
            flush=True,
        )


if __name__ == "__main__":
    main()
