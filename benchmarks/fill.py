"""Fill a journal with as many jobs as a large site has in a month, to time pages and queries on.

    python benchmarks/fill.py DIRECTORY [--jobs 100000] [--seed 1]

One job in four fails; those failures are judged and decided by the real controller, so that attempts, verdicts,
exceptions and actions stand in the journal as the service would have written them.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Known, Observation
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Effect, Judged, Looked
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import ActionState, Journal
from perdure.triage.judge import judge

CLUSTER = "bench"
START_S = 1_790_000_000.0
SPACING_S = 25.0  # between two submits
NODES = tuple(Node(f"gpu{i:04}", NodeState.UP, gpus=8) for i in range(500))
AT_ONCE = 1000
LOGS = (
    b"RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)",
    b"ConnectionResetError: [Errno 104] Connection reset by peer",
    b"RuntimeError: CUDA error: uncorrectable ECC error encountered",
    b"FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'",
    b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
)
USUAL = ((JobState.COMPLETED, AttemptState.COMPLETED), (JobState.FAILED, AttemptState.FAILED))


def fill(directory: Path, jobs: int = 100_000, seed: int = 1) -> None:
    """Write `jobs` jobs into the journal of `directory`. The last few hundred are still waiting or running."""
    rng = np.random.default_rng(seed)
    settings = ControllerSettings()
    journal = Journal.open(directory, CLUSTER)
    state = ControllerState(CLUSTER)
    for start in range(0, jobs, AT_ONCE):
        before, effects = state, list[Effect]()
        chunk = [_job(number, jobs, rng) for number in range(start, min(start + AT_ONCE, jobs))]
        now = START_S + SPACING_S * (start + AT_ONCE)
        seen = tuple(attempt for _, attempt in chunk if attempt is not None)
        looked = Looked(Observation(CLUSTER, now, tuple(job for job, _ in chunk), seen, NODES))
        state, effects = step(state, looked, settings)
        for attempt in seen:
            if attempt.state.is_failure:
                verdict = judge(LOGS[int(attempt.id.job_id) % len(LOGS)], attempt)
                state, more = step(state, Judged(now, attempt.id, verdict), settings)
                effects += more
        journal.record(effects, before, state)
        if start + AT_ONCE < jobs:  # what was settled long ago is remembered by nobody
            before, state = state, ControllerState(CLUSTER, Known(nodes=state.known.nodes))
            journal.record([], before, state)
    for row in journal.planned()[: -AT_ONCE // 10]:
        journal.begin(row.key, row.created_s)
        journal.finish(replace(row, state=ActionState.STARTED), ActionState.DONE, "requeued", row.created_s + 1.0)
    journal.close()


def _job(number: int, jobs: int, rng: np.random.Generator) -> tuple[Job, Attempt | None]:
    """A job and its attempt; none where it still waits."""
    submit_s = START_S + SPACING_S * number
    gpus = int(rng.choice((1, 2, 4, 8)))
    user = f"user{int(rng.zipf(1.5)) % 300}"
    job_state, attempt_state = USUAL[int(rng.random() < 0.25)]
    left = jobs - number
    if left <= 300:
        job_state, attempt_state = (JobState.RUNNING, AttemptState.RUNNING) if left > 100 else (JobState.PENDING, None)
    job = Job(
        CLUSTER,
        str(number),
        f"train-{number % 97}",
        user,
        job_state,
        submit_s,
        "gpu",
        gpus,
        node_count=1,
        walltime_s=86400.0,
    )
    if attempt_state is None:
        return job, None
    start_s = submit_s + float(rng.exponential(600.0))
    end_s = start_s + float(rng.lognormal(7.0, 1.5)) if attempt_state.is_over else None
    attempt = Attempt(
        AttemptId(CLUSTER, str(number), 1),
        attempt_state,
        (NODES[int(rng.integers(len(NODES)))].name,),
        start_s,
        end_s,
        exit_code=int(attempt_state is AttemptState.FAILED),
        gpus=gpus,
        user=user,
        stdout=f"/home/{user}/train-{number}.log",
    )
    return job, attempt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.perf_counter()
    fill(given.directory, given.jobs, given.seed)
    print(f"{given.jobs} jobs in {given.directory}, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
