"""How long a decision takes once a log is read: an end and its verdict through the controller, into the journal.

    python benchmarks/decision.py [--cases 5000] [--decisions 500]

Prints the median and the 99th percentile of "an attempt ended" plus "it was judged", both journalled with every commit
on disk, while as many jobs with failures are remembered as ever are; then the same without the journal, and what both
took of the processor, which is the figure to go by on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from perdure.model.identity import AttemptId
from perdure.model.jobs import Attempt, AttemptState, Job, JobState
from perdure.model.nodes import Node, NodeState
from perdure.model.observation import Observation
from perdure.service.core.case import ControllerState
from perdure.service.core.controller import step
from perdure.service.core.messages import Judged, Looked
from perdure.service.core.settings import ControllerSettings
from perdure.service.store.journal import Journal
from perdure.service.workers.gc_tuning import keep_pauses_short
from perdure.triage.verdict import Bound, Label, Verdict

LABELS = (Label.TRANSIENT, Label.DETERMINISTIC, Label.UNSURE)
NODES = tuple(Node(f"n{i}", NodeState.UP, gpus=8) for i in range(1000))


def failure(number: int) -> tuple[Job, Attempt, Verdict]:
    job_id = str(number)
    job = Job("c", job_id, "train", f"user{number % 200}", JobState.FAILED, 0.0, gpus=8)
    node = f"n{number % len(NODES)}"
    attempt = Attempt(
        AttemptId("c", job_id, 1),
        AttemptState.FAILED,
        (node,),
        float(number),
        number + 3600.0,
        1,
        gpus=8,
        user=job.user,
    )
    label = LABELS[number % 3]
    bound = Bound.NODE if number % 6 == 0 else Bound.NOTHING
    verdict = Verdict(label, 0.8, "net", "connection lost", (), bound, number % 2 == 0, f"f{number % 40}")
    return job, attempt, verdict


def filled(journal: Journal, cases: int, settings: ControllerSettings) -> ControllerState:
    """A controller that remembers `cases` failures, all of them judged."""
    made = [failure(number) for number in range(cases)]
    look = Observation("c", 1e6, tuple(j for j, _, _ in made), tuple(a for _, a, _ in made), NODES)
    state, effects = step(ControllerState("c"), Looked(look), settings)
    for _, attempt, verdict in made:
        state, more = step(state, Judged(1e6, attempt.id, verdict), settings)
        effects += more
    journal.record(effects, ControllerState("c"), state)
    return state


def decisions(
    journal: Journal, state: ControllerState, settings: ControllerSettings, count: int
) -> Iterator[tuple[float, float, float]]:
    """Of each decision: seconds with the journal, seconds without, and seconds of processor time for both."""
    jobs = tuple(state.known.jobs.values())
    for number in range(len(jobs), len(jobs) + count):
        job, attempt, verdict = failure(number)
        now = 1e6 + number
        seen = Observation("c", now, (*jobs, job), (attempt,), NODES)
        writing_s, began, cpu = 0.0, time.perf_counter(), time.process_time()
        for event in (Looked(seen), Judged(now, attempt.id, verdict)):
            before = state
            state, effects = step(before, event, settings)
            paused = time.perf_counter()
            journal.record(effects, before, state)
            writing_s += time.perf_counter() - paused
        took_s = time.perf_counter() - began
        yield took_s, took_s - writing_s, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--decisions", type=int, default=500)
    given = parser.parse_args()
    settings = ControllerSettings()
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal.open(directory, "c")
        state = filled(journal, given.cases, settings)
        keep_pauses_short()  # as the service does once its journal has been read back
        found = 1000.0 * np.array(list(decisions(journal, state, settings, given.decisions)))
        journal.close()
    for name, column in zip(("decided and journalled", "decided alone", "processor time"), found.T, strict=True):
        median, p99 = np.quantile(column, (0.5, 0.99))
        print(f"{name:24} median {median:6.2f} ms   p99 {p99:6.2f} ms   ({given.cases} cases, {len(column)} decisions)")


if __name__ == "__main__":
    main()
