"""`perdure up --cluster slurm` as an operator types it: shadow mode first, then armed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.service.store.journal import Journal
from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm

PEER_LOST = """
if [ -z "$SLURM_RESTART_COUNT" ]; then
  echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
  exit 1
fi
echo done
"""


@pytest.fixture
def perdure(quiet_cluster: SlurmCluster, tmp_path: Path) -> Iterator[tuple[Callable[..., None], Callable[..., Any]]]:
    """Run one command of the command line where the cluster's tools are."""
    environment = {**quiet_cluster.env, "HOME": str(tmp_path), "PERDURE_SERVICE_POLL_S": "1"}
    running = []

    def command(*words: str) -> list[Any]:
        return [sys.executable, "-m", "perdure", *words]

    def start(*words: str) -> None:
        up = subprocess.Popen(command("up", *words), env=environment, stdout=subprocess.PIPE, text=True)
        running.append(up)
        assert "http://127.0.0.1:" in up.stdout.readline()

    def ask(*words: str) -> Any:
        done = subprocess.run(command(*words, "--json"), env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    yield start, ask
    for up in running:
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 0
        up.stdout.close()


def actions_of(ask: Callable[..., Any], state: str) -> list[Any]:
    seen = []

    def found() -> list[Any]:
        seen[:] = ask("actions")["actions"]
        return [action for action in seen if action["state"] == state]

    return await_(f"an action that is {state}", found, 120, lambda: f": {seen}, of {ask('jobs')}")


def test_it_observes_unless_it_is_armed(
    quiet_cluster: SlurmCluster, perdure: tuple[Callable[..., None], Callable[..., Any]]
) -> None:
    start, ask = perdure
    start("--cluster", "slurm", "--port", "0")
    job = quiet_cluster.submit(PEER_LOST)
    (action,) = actions_of(ask, "shadow")
    assert action["kind"] == "requeue"
    quiet_cluster.wait(job, lambda fields: fields["JobState"] == "FAILED")


def test_armed_it_acts(quiet_cluster: SlurmCluster, perdure: tuple[Callable[..., None], Callable[..., Any]]) -> None:
    start, ask = perdure
    start("--cluster", "slurm", "--act", "--port", "0")
    job = quiet_cluster.submit(PEER_LOST)
    (action,) = actions_of(ask, "done")
    assert action["kind"] == "requeue"
    quiet_cluster.wait(job, lambda fields: fields["JobState"] == "COMPLETED")
    first, second = quiet_cluster.ends(job)
    assert second["NodeList"] != first["NodeList"]


def test_the_state_of_another_slurm_is_not_gone_on_with(quiet_cluster: SlurmCluster, tmp_path: Path) -> None:
    """Both give out the same job ids: what was decided for the one must not be done to the other."""
    journal = Journal.open(tmp_path, "slurm")
    journal.manager("elsewhere")
    journal.close()
    words = ("up", "--cluster", "slurm", "--port", "0", "--state", str(tmp_path))
    up = subprocess.run(
        (sys.executable, "-m", "perdure", *words), env=quiet_cluster.env, capture_output=True, text=True, timeout=60
    )
    assert up.returncode == 2
    assert f"ClusterName=elsewhere, and the Slurm that answers here is {quiet_cluster.name}" in up.stderr
    assert "--state DIR" in up.stderr
