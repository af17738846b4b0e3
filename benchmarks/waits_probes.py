"""Slurm's estimates corrected by what came of earlier ones, on recorded ``sbatch --test-only`` and true starts.

    python -m benchmarks.waits_probes ../shared/data/queues/slurm_test_only_vs_true_narval_2022.csv

The file tells neither when a job was submitted nor the queue, so that nothing can be simulated. Each estimate is taken
for the answer "at once" at the instant that it names, and corrected as ``perdure when`` corrects its own answers
(`perdure.waits.own_errors`), by jobs that had started some time before that instant. Nothing was chosen on this file.
"""

from __future__ import annotations

import argparse
import csv
from datetime import datetime
from pathlib import Path

import numpy as np

from perdure.model.jobs import JobState
from perdure.waits.calibration import Promise
from perdure.waits.forecast import LEVELS, WaitForecast
from perdure.waits.own_errors import kind_of, own_errors
from perdure.waits.queue import QueuedJob

AT_ONCE = (0.0,) * len(LEVELS)
KNOWN_AFTER_S = (0.0, 3600.0)  # the true instant at which Slurm was asked is not told: it lies before the estimate
PARTITION = ("gpu",)


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    with parser.parse_args().data.open() as file:
        found = [
            (_instant(row["estimate_start_time"]), _instant(row["true_start_time"]), row["unique_id"], int(row["gpus"]))
            for row in csv.DictReader(file)
        ]
    found.sort()
    for after_s in KNOWN_AFTER_S:
        off, by_slurm, corrected = [], [], []
        for estimate_s, start_s, name, gpus in found:
            known = [
                Promise(job, asked_s, AT_ONCE, came_s, AT_ONCE, kind_of(PARTITION, size))
                for asked_s, came_s, job, size in found
                if max(asked_s, came_s) < estimate_s - after_s
            ]
            job = QueuedJob(name, "", JobState.PENDING, PARTITION, gpus)
            own = own_errors(known, frozenset(), estimate_s, None)
            told = own.corrected(WaitForecast(estimate_s, AT_ONCE), job)
            off.append(abs(estimate_s + told.median_s - start_s))
            by_slurm.append(abs(estimate_s - start_s))
            corrected.append(bool(known))
        print(f"known {after_s:.0f} s after: {len(off)} jobs, {sum(corrected)} corrected")
        for what, errors in (("corrected", off), ("Slurm's estimate", by_slurm)):
            print(f"  {what}: median error {np.median(errors):.0f} s, mean {np.mean(errors):.0f} s")


if __name__ == "__main__":
    main()
