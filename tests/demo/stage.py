"""The demonstration's jobs on a real embedded cluster, played by hand: tests say what happens next, and when."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perdure.backends.local import LocalBackend, start_daemon, stop_daemon
from perdure.backends.local.records import Timing
from perdure.demo.driver import Site, job_spec
from perdure.demo.workload import SCENARIOS
from perdure.demo.workspace import Workspace, prepare
from perdure.model.actions import Outcome, Requeue
from perdure.model.jobs import Attempt, Job
from tests.copying import replace

NODES = ("n1", "n2", "n3", "n4")
GPUS = 4
PATIENCE_S = 60.0
ARRIVALS = {job.name: job for scenario in SCENARIOS for job in scenario.jobs}


@dataclass
class Stage:
    """A running cluster with the workspace laid out."""

    backend: LocalBackend
    workspace: Workspace

    def submit(self, name: str, *, pace: float = 0.02, **changes: object) -> str:
        """Submit the arrival of this name; `changes` are of the job's spec. Its walltime is not paced."""
        arrival = ARRIVALS[name]
        spec = job_spec(arrival, "k", Site(NODES, GPUS, pace), self.workspace)
        assert spec is not None
        return self.backend.submit(replace(spec, **{"walltime_s": arrival.walltime_s, **changes}))

    def job(self, job_id: str) -> Job:
        return next(job for job in self.backend.observe(0.0).jobs if job.job_id == job_id)

    def attempts(self, job_id: str) -> list[Attempt]:
        """All attempts of a job, oldest first."""
        found = [a for a in self.backend.observe(0.0).attempts if a.id.job_id == job_id]
        return sorted(found, key=lambda attempt: attempt.id.incarnation)

    def log(self, attempt: Attempt) -> str:
        return self.backend.output(attempt).main.tail.decode()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(0.02)

    def until_says(self, job_id: str, text: str) -> Attempt:
        """Wait until the log of the job's latest attempt holds `text`."""
        self.until(lambda: any(text in self.log(a) for a in self.attempts(job_id)[-1:]), f"{text!r} of job {job_id}")
        return self.attempts(job_id)[-1]

    def until_over(self, job_id: str) -> Attempt:
        """Wait until the job is over; its last attempt."""
        self.until(lambda: self.job(job_id).state.is_over, f"the end of job {job_id}")
        return self.attempts(job_id)[-1]

    def retry_elsewhere(self, attempt: Attempt) -> None:
        outcome: Outcome = self.backend.perform(Requeue(attempt.id, exclude=attempt.failed_nodes or attempt.nodes))
        assert outcome.status == "done", outcome


@contextmanager
def open_stage(directory: Path) -> Iterator[Stage]:
    state = directory / "cluster"
    timing = Timing(detect_s=0.1, kill_wait_s=1.0, thaw_s=0.2)
    start_daemon(state, nodes=len(NODES), gpus=GPUS, nice=0, timing=timing)
    try:
        yield Stage(LocalBackend(state), prepare(directory / "demo"))
    finally:
        stop_daemon(state)
