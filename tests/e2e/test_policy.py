"""A policy in force on the embedded cluster, the service killed in between: a short job overtakes a long one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.backends.local import JobSpec, LocalBackend
from perdure.errors import ClusterBusy
from perdure.model.jobs import JobState, PolicyConsent
from tests.e2e.service import await_

QUICK = {
    "PERDURE_POLICY_FIRST_LIMIT_S": "1", "PERDURE_POLICY_LEAST_RUN_S": "1", "PERDURE_POLICY_EVERY_S": "1",
    "PERDURE_SERVICE_POLL_S": "0.3",
}  # fmt: skip
SAVES = """
import pathlib, sys, time
saved, finish, starts = map(pathlib.Path, sys.argv[1:])
step = int(saved.read_text()) if saved.exists() else 0
with starts.open("a") as file:
    print(step, file=file)
while not finish.exists():
    time.sleep(0.1)
    step += 1
    saved.with_suffix(".new").write_text(str(step))
    saved.with_suffix(".new").replace(saved)
"""


@contextmanager
def service(state: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "perdure", "up", "--no-demo", "--nodes", "1", "--gpus", "1", "--port", "0"]
    with (state.parent / "up.log").open("ab") as log:
        command += ["--state", str(state), "--policy", "las-2d"]
        process = subprocess.Popen(command, env={**os.environ, **QUICK}, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def test_a_short_job_overtakes_and_the_long_one_goes_on_where_it_was(tmp_path: Path) -> None:
    state, backend = tmp_path / "state", LocalBackend(tmp_path / "state" / "cluster")
    jobs: dict[str, JobState] = {}

    def seen() -> dict[str, JobState]:
        try:
            found = backend.observe(0.0)
        except ClusterBusy:
            return jobs
        jobs.update((job.job_id, job.state) for job in found.jobs)
        return jobs

    def told() -> str:
        return f"{jobs}, {backend.observe(0.0).attempts}, {(tmp_path / 'up.log').read_text()[-2000:]}"

    with service(state) as up:
        await_(lambda: _answers(backend), 60.0, lambda: (tmp_path / "up.log").read_text())
        consent = PolicyConsent.PREEMPT
        paths = [str(tmp_path / name) for name in ("saved", "finish", "starts")]
        long = backend.submit(JobSpec((sys.executable, "-c", SAVES, *paths), gpus_per_node=1, consent=consent))
        await_(lambda: seen().get(long) is JobState.RUNNING, 30.0, told)
        time.sleep(1.5)
        up.kill()
        up.wait()
    with service(state):
        await_(lambda: _answers(backend), 60.0, told)
        short = backend.submit(JobSpec(("true",), gpus_per_node=1, consent=consent))
        await_(lambda: seen().get(short) is JobState.COMPLETED, 60.0, told)
        (tmp_path / "finish").touch()
        await_(lambda: seen().get(long) is JobState.COMPLETED, 60.0, told)
        ends = [each.state.value for each in backend.observe(0.0).attempts if each.id.job_id == long]
    assert ends[-2:] == ["requeued", "completed"]
    begun_at = [int(line) for line in (tmp_path / "starts").read_text().split()]
    assert begun_at == sorted(begun_at)
    assert begun_at[-1] > 0


def _answers(backend: LocalBackend) -> bool:
    try:
        backend.ping()
    except ClusterBusy:
        return False
    return True
