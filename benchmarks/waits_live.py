"""How well live answers hold: jobs of all sizes compete on a real Slurm, and each minute all that wait are asked about.

    SLURM_CONF=.../slurm.conf python -m benchmarks.waits_live --minutes 30

Jobs last seconds, with limits of minutes. Answers are those of ``perdure when``, corrected by ``perdure when fit`` anew
every ten minutes. The starts that came, by accounting, say how many lay within the intervals, beside Slurm's own plan.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

import numpy as np

from perdure.cli.live_queue import keep_fit, live_queue
from perdure.waits.answer import AnswerBasis, answers
from perdure.waits.hindcast import fit
from perdure.waits.queue import Queue

RUN_S = (5, 10, 20, 30, 45, 60, 90, 120)
GPUS = (1, 1, 1, 2, 2, 4, 4, 8)
LOOSE = (1.0, 1.0, 1.5, 2.0, 4.0)  # limit over running time
FIT_EVERY_S = 600.0
FLOOR_S = 5.0  # starts are told by whole seconds, and a scheduling cycle takes some


@dataclass(slots=True)
class _Said:
    job: str
    asked_s: float
    low_s: float
    median_s: float
    high_s: float
    planned_s: float | None


@dataclass(slots=True)
class Drive:
    """What was submitted and said so far."""

    rng: np.random.Generator
    load: float
    total_gpus: int
    said: list[_Said] = field(default_factory=list)

    def gap_s(self) -> float:
        """Seconds to the next submit, so that jobs ask for `load` of the GPUs in the mean."""
        mean = np.mean(RUN_S) * np.mean(GPUS) / (self.load * self.total_gpus)
        return float(self.rng.exponential(mean))

    def submit(self) -> None:
        run_s, gpus = int(self.rng.choice(RUN_S)), int(self.rng.choice(GPUS))
        minutes = max(1, int(np.ceil(run_s * self.rng.choice(LOOSE) / 60)))
        nodes = ("-N2", "--gres=gpu:4") if gpus == 8 else ("-N1", f"--gres=gpu:{gpus}")
        argv = ("sbatch", "-Q", "-o", "/dev/null", *nodes, f"-t{minutes}", "--wrap", f"sleep {run_s}")
        subprocess.run(argv, check=True, capture_output=True)

    def ask(self, queue: Queue, site: AnswerBasis) -> None:
        for found in answers(queue, site, self.rng):
            if found.forecast is not None and found.job.is_waiting:
                low_s, high_s = found.forecast.interval_s
                median_s = found.forecast.median_s
                self.said.append(_Said(found.job.job_id, queue.now_s, low_s, median_s, high_s, found.planned_s))


def run(minutes: float, load: float, seed: int) -> dict[str, object]:
    """Drive the cluster, then hold what was said against what came."""
    queue, _ = live_queue()
    drive = Drive(np.random.default_rng(seed), load, sum(node.gpus for node in queue.nodes))
    end = time.monotonic() + minutes * 60
    next_ask, next_fit = time.monotonic() + 120, time.monotonic() + FIT_EVERY_S
    while time.monotonic() < end:
        drive.submit()
        time.sleep(min(drive.gap_s(), 60))
        if time.monotonic() >= next_ask:
            next_ask = time.monotonic() + 60
            queue, site = live_queue()
            if time.monotonic() >= next_fit:
                next_fit = time.monotonic() + FIT_EVERY_S
                keep_fit(fit(queue, site.settings, site.past, drive.rng, 20, 8))
            drive.ask(queue, site)
    while subprocess.run(("squeue", "-h"), capture_output=True, check=True).stdout:
        time.sleep(5)
    time.sleep(10)
    return report(drive.said)


def report(said: list[_Said]) -> dict[str, object]:
    """Coverage of the intervals, errors of the medians, and of Slurm's plans on the same answers."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    argv = ("sacct", "-n", "-P", "-X", "-a", "-S", "now-1day", "-o", "JobID,Start")
    text = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment).stdout
    start = {job: float(at) for job, _, at in (line.partition("|") for line in text.splitlines()) if at.isdecimal()}
    known = [each for each in said if each.job in start]
    came = np.array([start[each.job] - each.asked_s for each in known])
    low, median, high = (np.array([getattr(each, name) for each in known]) for name in ("low_s", "median_s", "high_s"))
    plan = np.array([np.nan if each.planned_s is None else each.planned_s - each.asked_s for each in known])
    planned = np.isfinite(plan)
    inside = (came >= low - FLOOR_S) & (came <= high + FLOOR_S)
    return {
        "answers": len(known),
        "jobs": len({each.job for each in known}),
        "median_wait_s": float(np.median(came)),
        "covered_80": float(inside.mean()),
        "width_s": float(np.median(high - low)),
        "median_error_s": float(np.median(np.abs(median - came))),
        "with_plan": int(planned.sum()),
        "median_error_where_planned_s": float(np.median(np.abs(median - came)[planned])),
        "slurm_error_where_planned_s": float(np.median(np.abs(plan - came)[planned])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--load", type=float, default=1.0, help="GPUs asked for over GPUs there are")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:  # no picture and no history of before
        os.environ["XDG_CACHE_HOME"] = cache
        print(json.dumps(run(asked.minutes, asked.load, asked.seed)))


if __name__ == "__main__":
    main()
