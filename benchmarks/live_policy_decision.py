"""How long one decision of a policy in force takes: 1,000 waiting jobs, a third of which ran before, all nodes in use.

python -m benchmarks.live_policy_decision
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from perdure.live_policy.decide import decide
from perdure.live_policy.preemptions import PolicyMemory
from perdure.live_policy.settings import PolicySettings
from perdure.model.jobs import JobState, PolicyConsent
from perdure.waits.queue import Queue, QueuedJob, QueuedNode, QueuedPartition, QueueLook

NOW_S, GPUS = 1e6, 4


def drawn(waiting: int, nodes: int, rng: np.random.Generator) -> tuple[QueueLook, dict[str, list[tuple[float, float]]]]:
    """A queue, and when its waiting jobs ran before."""
    own: dict[str, Any] = {"partitions": ("main",), "consent": PolicyConsent.PREEMPT, "walltime_s": 3600.0}
    jobs = [
        QueuedJob(
            str(at),
            "ada",
            JobState.RUNNING,
            gpus=GPUS,
            submit_s=0.0,
            start_s=NOW_S - ran,
            running_on=(f"n{at}",),
            **own,
        )
        for at, ran in enumerate(rng.integers(10, 20_000, nodes).tolist(), 1)
    ]
    for at in range(waiting):
        submit_s = NOW_S - 9000.0 + at
        gpus, priority = int(rng.choice([1, 2, 4])), int(rng.integers(10_000, 11_000))
        jobs.append(
            QueuedJob(
                str(nodes + 1 + at),
                "ada",
                JobState.PENDING,
                gpus=gpus,
                priority=priority,
                submit_s=submit_s,
                eligible_s=submit_s,
                reason="Priority",
                **own,
            )
        )
    ran = {job.job_id: [(NOW_S - 5000, NOW_S - 5000 + float(rng.integers(5, 4000)))] for job in jobs[nodes::3]}
    machines = tuple(QueuedNode(f"n{at}", ("main",), gpus=GPUS) for at in range(1, nodes + 1))
    queue = Queue(NOW_S, tuple(jobs), machines, (QueuedPartition("main"),))
    return QueueLook(queue, {"prioritytype": "priority/multifactor"}), ran


def main() -> None:
    """Print milliseconds of processor time: the least and the most of some runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    services = tuple(rng.exponential(5000.0, 1000).tolist())
    for nodes in (64, 1000):
        look, ran = drawn(given.waiting, nodes, rng)
        for name in ("fifo", "las-2d", "las-2d:8", "gittins-2d", "themis", "sia"):
            took = []
            for _ in range(given.runs):
                begun_s = time.process_time()
                found = decide(look, ran, PolicySettings(name), PolicyMemory(services=services))
                took.append(1000 * (time.process_time() - begun_s))
            words = f"{len(found.changes)} changes, {len(found.preemptions)} preemptions"
            print(f"{nodes} nodes, {name}: {min(took):.0f} to {max(took):.0f} ms, {words}")


if __name__ == "__main__":
    main()
