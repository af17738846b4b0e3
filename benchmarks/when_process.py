"""How long ``perdure when JOB`` takes, from fork to exit, and how much memory: python -m benchmarks.when_process

    python -m benchmarks.when_process [--nodes 100] [--waiting 300 3000 20000] [--past 20000] [--runs 5] [--state DIR]

What Slurm was asked for is kept already (a minute for the queue, an hour for accounting), so that this is all that
Perdure itself does: what is kept is written as Perdure keeps it, of nodes with eight GPUs in three partitions, full of
jobs, and of four weeks of past jobs. The first run of each size warms the file cache, and compiles what is not compiled
yet; it is not counted. `--state` keeps the folder, so that a later call compiles nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from numpy.random import Generator

from perdure.backends.slurm.past_jobs import FIELDS
from perdure.cli.live_queue import kept_of_slurm
from perdure.model.jobs import JobState
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueueLook

BUDGET_S = 1.5
DAY_S = 86_400.0
GPUS = 8  # of a node
PARTITIONS = (("main", 0.6), ("long", 0.25), ("debug", 0.15))  # with their shares of the nodes
USERS = 60
CONFIG = {
    "accountingstoragetype": "accounting_storage/slurmdbd",
    "prioritytype": "priority/multifactor",
    "priorityweightage": "1000",
    "priorityweightfairshare": "10000",
    "schedulertype": "sched/backfill",
}


def nodes_of(many: int) -> tuple[QueuedNode, ...]:
    """Nodes, each in one partition."""
    bounds = np.cumsum([share for _, share in PARTITIONS]) * many
    names = [PARTITIONS[int(np.searchsorted(bounds, at, side="right"))][0] for at in range(many)]
    return tuple(QueuedNode(f"n{at}", (name,), gpus=GPUS, cpus=64) for at, name in enumerate(names))


def queue_of(many: int, waiting: int, now_s: float, rng: Generator) -> Queue:
    """All GPUs are in use, and jobs wait."""
    nodes, jobs = nodes_of(many), []
    for number, node in enumerate(nodes, 1):
        ran_s = float(rng.uniform(60, DAY_S))
        jobs.append(
            QueuedJob(
                str(number), _user(rng), JobState.RUNNING, node.partitions, GPUS, 64, 1, 2 * DAY_S, 100,
                now_s - ran_s - 60, now_s - ran_s - 60, now_s - ran_s, running_on=(node.name,), account="lab",
            )
        )  # fmt: skip
    for number in range(many + 1, many + waiting + 1):
        came_s = now_s - float(rng.uniform(60, DAY_S))
        gpus = int(rng.choice([1, 1, 2, 4, 8, 8, 16, 32]))
        jobs.append(
            QueuedJob(
                str(number), _user(rng), JobState.PENDING, (_partition(rng),), gpus, 8 * gpus, -(-gpus // GPUS),
                float(rng.choice([3600, 4 * 3600, DAY_S, 2 * DAY_S])), int(rng.integers(100, 10_000)), came_s, came_s,
                reason="Priority", account="lab",
            )
        )  # fmt: skip
    partitions = tuple(QueuedPartition(name, is_default=name == "main") for name, _ in PARTITIONS)
    return Queue(now_s, tuple(jobs), nodes, partitions)


def history_of(many: int, now_s: float, rng: Generator) -> bytes:
    """What ``sacct`` prints of four weeks of jobs."""
    lines = ["|".join(FIELDS)]
    for number, submit_s in enumerate(sorted(rng.uniform(now_s - 28 * DAY_S, now_s - DAY_S, many).astype(int))):
        gpus, wait_s = int(rng.choice([1, 1, 2, 4, 8, 8, 16])), int(rng.exponential(3600))
        ran_s, limit_min = int(rng.exponential(2 * 3600)) + 1, int(rng.choice([60, 240, 1440, 2880]))
        start_s, tres = submit_s + wait_s, f"billing={8 * gpus},cpu={8 * gpus},gres/gpu={gpus},mem=64G,node=1"
        row = (
            number + 1_000_000, _user(rng), "lab", _partition(rng), "normal", submit_s, submit_s, start_s,
            min(ran_s, 60 * limit_min), limit_min, "COMPLETED", -(-gpus // GPUS), 8 * gpus, tres, tres,
        )  # fmt: skip
        lines.append("|".join(map(str, row)))
    return "\n".join(lines).encode() + b"\n"


def _middle(queue: Queue) -> str:
    """A job of one node in the largest partition, of a middling priority."""
    alike = [job for job in queue.waiting() if job.partitions == PARTITIONS[0][:1] and job.gpus == GPUS]
    return sorted(alike, key=lambda job: job.priority)[len(alike) // 2].job_id


def _user(rng: Generator) -> str:
    return f"user{min(USERS - 1, int(rng.exponential(10)))}"


def _partition(rng: Generator) -> str:
    return str(rng.choice([name for name, _ in PARTITIONS], p=[share for _, share in PARTITIONS]))


def measured(command: list[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Seconds from fork to exit, processor seconds, and MiB at the most."""
    began = time.perf_counter()
    child = os.posix_spawn(
        command[0], command, environment, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    )
    _, status, used = os.wait4(child, 0)
    took = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {os.waitstatus_to_exitcode(status)}")
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--waiting", type=int, nargs="+", default=[300, 3_000, 20_000])
    parser.add_argument("--past", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--state", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = asked.state or Path(folder)
        state.mkdir(parents=True, exist_ok=True)
        os.environ["XDG_CACHE_HOME"] = str(state)
        for name in ("SLURM_CONF", "PYTHONDONTWRITEBYTECODE"):
            os.environ.pop(name, None)
        tool = Path(folder) / "scontrol"
        tool.write_text("#!/bin/sh\nexit 1\n")  # it must be there, and is not asked
        tool.chmod(0o755)
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        slowest = 0.0
        for waiting in asked.waiting:
            rng = np.random.default_rng(0)
            now_s = float(int(time.time()))
            queue, kept = queue_of(asked.nodes, waiting, now_s, rng), kept_of_slurm()
            kept.write("history.txt", history_of(asked.past, now_s, rng))
            command = [sys.executable, "-m", "perdure", "when", _middle(queue)]
            runs = []
            for _ in range(asked.runs + 1):
                look = QueueLook(msgspec.structs.replace(queue, now_s=float(int(time.time()))), CONFIG)
                kept.write("queue.json", msgspec.json.encode(look))
                kept.write("promises.json", b"[]")  # else each answer would be corrected by the ones before it
                runs.append(measured(command, dict(os.environ)))
            wall, cpu, size = (statistics.median(each) for each in zip(*runs[1:], strict=True))
            print(
                f"{asked.nodes} nodes, {waiting:,d} jobs wait, {asked.past:,d} past jobs: median of {asked.runs} runs "
                f"{wall:.2f} s, {cpu:.2f} s of the processor, {size:.0f} MiB",
                flush=True,
            )
            slowest = max(slowest, wall)
    return int(slowest > BUDGET_S)


if __name__ == "__main__":
    sys.exit(main())
