"""How many what-if starts a second: python -m benchmarks.slurm_forks TRACE.swf[.gz] [--gpus 360 256] [--horizon H]

Each hour of the trace the simulated queue is forked twice: a job of one GPU, and one of eight, both with a limit of 48
hours, come then, and the fork goes on until the job starts, or for so many hours: a job that has not started then waits
longer, and how much longer is not asked. Without a horizon a fork of a saturated queue goes on to the end of the trace,
as there narrow jobs never come first. Limits, weights and backfill are those of slurm_queue.py,
limits at most 48 hours. Seconds are of the processor, the advance of the queue itself included.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.slurm_queue import SITE, limited
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.slurm.policy import Slurm
from perdure.simulation.live import LiveQueue
from perdure.traces.read import read

HOUR_S = 3600.0
LIMIT_S = 48 * HOUR_S
PROBES = JobTable(np.array(["one", "eight"]), np.zeros(2), np.array([1, 8]), np.full(2, LIMIT_S),
                  walltime_s=np.full(2, LIMIT_S))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gpus", nargs="+", default=["360", "315", "290", "256"])
    parser.add_argument("--horizon", type=float, default=np.inf, metavar="H", help="hours; none if not given")
    parser.add_argument("--every", type=float, default=1.0, metavar="H", help="hours between forks")
    asked = parser.parse_args()
    table = limited(read(asked.trace).table)
    table = replace(table, walltime_s=np.minimum(table.walltime_s, LIMIT_S))
    for gpus in asked.gpus:
        cluster = Cluster.parse(f"{gpus}x1")
        LiveQueue.replaying(table, cluster, Slurm(SITE), PROBES).start_if_submitted(0, 0.0)  # loads what is compiled
        queue, began, waits = LiveQueue.replaying(table, cluster, Slurm(SITE), PROBES), time.process_time(), []
        for at_s in np.arange(0.0, table.submit_s[-1], asked.every * HOUR_S).tolist():
            queue.advance(at_s)
            until_s = at_s + asked.horizon * HOUR_S
            waits += [queue.start_if_submitted(probe, at_s, until_s) - at_s for probe in (0, 1)]
        took = time.process_time() - began
        print(
            f"{len(table):,d} jobs, {gpus} GPUs: {len(waits):,d} forks in {took:.1f} s CPU, {len(waits) / took:,.0f} "
            f"forks/s, mean wait {np.nanmean(waits[0::2]) / HOUR_S:.1f} h and {np.nanmean(waits[1::2]) / HOUR_S:.1f} h"
            f", {np.isnan(waits).mean():.0%} wait longer",
            flush=True,
        )


if __name__ == "__main__":
    main()
