"""How well live answers hold: jobs of all sizes compete on a real Slurm, and each minute all that wait are asked about.

    SLURM_CONF=.../slurm.conf python -m benchmarks.waits_live --minutes 30 [--partitions main=0.6 debug=0.4]

Jobs last seconds, with limits of minutes. Answers are those of ``perdure when``, corrected by those given before and,
every ten minutes again, by ``perdure when fit``. The starts that came, by accounting, say how many lay within the
intervals, beside Slurm's own plan.

Every three minutes jobs come whose cause to wait is known: a dependency, a limit of an array, a reservation of all
nodes in three hours. Answers about them, and about jobs for which Slurm says Priority or Resources, are compared with
it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from perdure.cli.live_queue import keep_answer, keep_fit, live_queue
from perdure.installation import cache_folder
from perdure.waits.answer import AnswerBasis, answers
from perdure.waits.forecast import INTERVAL, LEVELS
from perdure.waits.hindcast import fit
from perdure.waits.queue import Queue, QueuedJob

RUN_S = (5, 10, 20, 30, 45, 60, 90, 120)
GPUS = (1, 1, 1, 2, 2, 4, 4, 8)
LOOSE = (1.0, 1.0, 1.5, 2.0, 4.0)  # limit over running time
FIT_EVERY_S = 600.0
CAUSES_EVERY_S = 180.0
RESERVATION = "waits-live"  # of all nodes
RESERVED_IN_S, TOO_LONG_MINUTES = 10_800, 240
FLOOR_S = 5.0  # starts are told by whole seconds, and a scheduling cycle takes some


@dataclass(slots=True)
class _Said:
    job: str
    asked_s: float
    low_s: float
    median_s: float
    high_s: float
    planned_s: float | None
    raw: tuple[float, float]  # the interval before any correction


@dataclass(slots=True)
class Drive:
    """What was submitted and said so far."""

    rng: np.random.Generator
    load: float
    total_gpus: int
    partitions: Mapping[str, float]
    said: list[_Said] = field(default_factory=list)
    causes: dict[str, str] = field(default_factory=dict)  # by job; of a dependency with the job behind a space
    holds: Counter[tuple[str, str]] = field(default_factory=Counter)  # what holds a job, and what was told

    def gap_s(self) -> float:
        """Seconds to the next submit, so that jobs ask for `load` of the GPUs in the mean."""
        mean = np.mean(RUN_S) * np.mean(GPUS) / (self.load * self.total_gpus)
        return float(self.rng.exponential(mean))

    def submit(self) -> None:
        run_s, gpus = int(self.rng.choice(RUN_S)), int(self.rng.choice(GPUS))
        minutes = max(1, int(np.ceil(run_s * self.rng.choice(LOOSE) / 60)))
        nodes = ("-N2", "--gres=gpu:4") if gpus == 8 else ("-N1", f"--gres=gpu:{gpus}")
        partition = str(self.rng.choice(list(self.partitions), p=list(self.partitions.values())))
        _submit(run_s, f"-p{partition}", *nodes, f"-t{minutes}")

    def submit_known_causes(self) -> None:
        first = _submit(90, "--gres=gpu:1", "-t2")
        self.causes[_submit(5, "--gres=gpu:1", "-t1", f"--dependency=afterany:{first}")] = f"dependency {first}"
        self.causes[_submit(40, "--gres=gpu:1", "-t1", "--array=0-3%1")] = "limit"
        self.causes[_submit(5, "--gres=gpu:1", f"-t{TOO_LONG_MINUTES}")] = "reservation"

    def cause(self, job: QueuedJob, queue: Queue) -> str | None:
        """What holds a job, where that is known without Slurm's word, or is one of two words of Slurm."""
        kind, _, first = self.causes.get(job.array, "").partition(" ")
        if kind == "dependency" and any(each.job_id == first for each in queue.jobs):
            return kind
        if kind == "limit" and any(each.array == job.array for each in queue.running()):
            return kind
        if kind == "reservation":
            return kind
        return job.reason.lower() if not kind and job.reason in ("Priority", "Resources") else None

    def ask(self, queue: Queue, site: AnswerBasis, rng: np.random.Generator) -> None:
        for found in answers(queue, site, rng):
            if found.job.is_waiting and (cause := self.cause(found.job, queue)) is not None:
                self.holds[cause, str(found.hold.kind)] += 1
            keep_answer(found, queue, site.past)
            if found.forecast is not None and found.job.is_waiting:
                low_s, high_s = found.forecast.interval_s
                median_s = found.forecast.median_s
                raw_low_s, raw_high_s = (found.forecast.raw_s[LEVELS.index(level)] for level in INTERVAL)
                self.said.append(
                    _Said(
                        found.job.job_id, queue.now_s, low_s, median_s, high_s, found.planned_s, (raw_low_s, raw_high_s)
                    )
                )  # fmt: skip


def _submit(run_s: int, *options: str) -> str:
    argv = ("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", f"sleep {run_s}")
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def run(minutes: float, load: float, seed: int, partitions: Mapping[str, float]) -> dict[str, object]:
    """Drive the cluster, then hold what was said against what came."""
    queue, _ = live_queue()
    drive = Drive(np.random.default_rng(seed), load, sum(node.gpus for node in queue.nodes), partitions)
    made = (f"reservationname={RESERVATION}", f"starttime=now+{RESERVED_IN_S}", "duration=60", "nodes=ALL")
    subprocess.run(("scontrol", "create", "reservation", *made, "flags=maint", "users=root"), check=True)
    try:
        _drive(drive, time.monotonic() + minutes * 60)
    finally:
        too_long = [job for job, cause in drive.causes.items() if cause == "reservation"]
        subprocess.run(("scancel", "-Q", *too_long), check=False)
        subprocess.run(("scontrol", "delete", f"reservationname={RESERVATION}"), check=False)
    while subprocess.run(("squeue", "-h"), capture_output=True, check=True).stdout:
        time.sleep(5)
    time.sleep(10)
    return report(drive)


def _drive(drive: Drive, end: float) -> None:
    """Ask each minute, and let jobs come all the while: to fit may take minutes."""
    coming = threading.Thread(target=_submit_until, args=(drive, end), daemon=True)
    coming.start()
    next_fit, rng = time.monotonic() + FIT_EVERY_S, np.random.default_rng(0)
    time.sleep(120)
    while time.monotonic() < end:
        next_ask = time.monotonic() + 60
        queue, site = live_queue()
        drive.ask(queue, site, rng)
        if next_fit <= time.monotonic() < end:
            next_fit = time.monotonic() + FIT_EVERY_S
            keep_fit(fit(queue, site.settings, site.past, rng, 20, 8))
        time.sleep(max(0.0, min(next_ask, end) - time.monotonic()))
    coming.join()


def _submit_until(drive: Drive, end: float) -> None:
    next_causes = next_job = time.monotonic()
    while time.monotonic() < end:
        drive.submit()
        if time.monotonic() >= next_causes:
            next_causes = time.monotonic() + CAUSES_EVERY_S
            drive.submit_known_causes()
        next_job += drive.gap_s()  # however long sbatch takes
        time.sleep(max(0.0, min(next_job, end) - time.monotonic()))


def report(drive: Drive) -> dict[str, object]:
    """Coverage of the intervals, errors of the medians, and of Slurm's plans on the same answers; and of holds."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    argv = ("sacct", "-n", "-P", "-X", "-a", "-S", "now-1day", "-o", "JobID,Start")
    text = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment).stdout
    start = {job: float(at) for job, _, at in (line.partition("|") for line in text.splitlines()) if at.isdecimal()}
    known = [each for each in drive.said if each.job in start]
    came = np.array([start[each.job] - each.asked_s for each in known])
    low, median, high = (np.array([getattr(each, name) for each in known]) for name in ("low_s", "median_s", "high_s"))
    plan = np.array([np.nan if each.planned_s is None else each.planned_s - each.asked_s for each in known])
    planned = np.isfinite(plan)
    inside = (came >= low - FLOOR_S) & (came <= high + FLOOR_S)
    raw = np.array([each.raw for each in known])
    return {
        "answers": len(known),
        "jobs": len({each.job for each in known}),
        "median_wait_s": float(np.median(came)),
        "covered_80": float(inside.mean()),
        "covered_80_uncorrected": float(((came >= raw[:, 0] - FLOOR_S) & (came <= raw[:, 1] + FLOOR_S)).mean()),
        "width_s": float(np.median(high - low)),
        "median_error_s": float(np.median(np.abs(median - came))),
        "with_plan": int(planned.sum()),
        "median_error_where_planned_s": float(np.median(np.abs(median - came)[planned])),
        "slurm_error_where_planned_s": float(np.median(np.abs(plan - came)[planned])),
        "holds": {f"{cause}, told {told}": count for (cause, told), count in sorted(drive.holds.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--load", type=float, default=1.0, help="GPUs asked for over GPUs there are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--partitions", nargs="+", default=["main=1"], metavar="NAME=SHARE", help="which jobs name")
    asked = parser.parse_args()
    named = (each.partition("=") for each in asked.partitions)
    partitions = {name: float(share) for name, _, share in named}
    with tempfile.TemporaryDirectory() as cache:  # no picture and no history of before, but the code of before
        kept = Path(cache) / "perdure"
        kept.mkdir(mode=0o700)
        (kept / "compiled").symlink_to(cache_folder() / "compiled")
        os.environ["XDG_CACHE_HOME"] = cache
        print(json.dumps(run(asked.minutes, asked.load, asked.seed, partitions)))


if __name__ == "__main__":
    main()
