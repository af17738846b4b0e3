"""The service on a real Slurm: a failure is explained, recovered once, and nothing is lost or done twice."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.model.actions import Exclude, Hold, Requeue
from perdure.model.jobs import JobState
from perdure.retry.rules import RetryRules
from perdure.service.core.settings import ControllerSettings
from perdure.service.workers.executor import ActionState
from tests.e2e.service import Running, await_, running
from tests.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

QUICK = ControllerSettings(retry=RetryRules(back_off_s=1.0))
SHAPE = """
echo 'step 1 loss 0.5'
echo 'RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)' >&2
exit 1
"""
PEER_LOST = """
echo "step 1 on $SLURMD_NODENAME"
if [ -z "$SLURM_RESTART_COUNT" ]; then
  echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2
  exit 1
fi
echo done
"""

STUCK = """
[ "$SLURMD_NODENAME" = {bad} ] && sleep 3600
echo done
"""
GATED = """
until [ -e {gate} ]; do sleep 0.2; done
"""


@pytest.fixture
def backend(quiet_cluster: SlurmCluster) -> SlurmBackend:
    return SlurmBackend(quiet_cluster.name, Tools(timeout_s=15.0, environment=quiet_cluster.env))


@pytest.fixture
def service(backend: SlurmBackend, tmp_path: Path) -> Iterator[Running]:
    with running(backend, tmp_path, look_every_s=1.0, settings=QUICK) as one:
        yield one


def nodes_of(attempt: dict[str, Any]) -> Any:
    return json.loads(attempt["payload"])["nodes"]


def test_a_deterministic_failure_is_stopped_and_explained(quiet_cluster: SlurmCluster, service: Running) -> None:
    job = quiet_cluster.submit(SHAPE)
    stopped = service.await_exception(job, "stopped")
    assert (stopped["decision"], stopped["type"]) == ("stop", "job.shape")
    (attempt,) = service.attempts(job)
    assert any("mat1 and mat2" in line["text"] for line in json.loads(attempt["verdict"])["evidence"])
    assert service.actions(job) == []


def test_a_transient_failure_is_requeued_off_the_bad_node_and_succeeds(
    quiet_cluster: SlurmCluster, service: Running
) -> None:
    job = quiet_cluster.submit(PEER_LOST)
    service.await_exception(job, "recovered")
    first, second = service.attempts(job)
    assert nodes_of(second) != nodes_of(first)
    (action,) = service.actions(job)
    assert (type(action.action), action.state) == (Requeue, ActionState.DONE)
    assert quiet_cluster.job(job)["Restarts"] == "1"


def test_no_requeue_is_honoured(quiet_cluster: SlurmCluster, service: Running) -> None:
    job = quiet_cluster.submit(PEER_LOST, "--no-requeue")
    assert "--no-requeue" in service.await_exception(job, "stopped")["reason"]
    assert service.actions(job) == []


def test_a_dead_node_is_recovered_once_by_slurm_and_left_at_that(quiet_cluster: SlurmCluster, service: Running) -> None:
    job = quiet_cluster.submit(STUCK.format(bad="node2"), "-w", "node2")
    service.await_job(job, JobState.RUNNING)
    quiet_cluster.fail_node("node2")
    try:
        # Slurm requires node2 still (-w): it takes our exclusion, which clears that, for the job to go elsewhere
        recovered = service.await_exception(job, "recovered")
    finally:
        quiet_cluster.return_node("node2")
    assert (recovered["type"], recovered["owner"]) == ("node.failure", "resource_manager")
    first, second = service.attempts(job)
    assert (first["state"], second["state"]) == ("node_fail", "completed")
    assert nodes_of(second) != ["node2"]
    assert [type(row.action) for row in service.actions(job)] == [Exclude]
    assert quiet_cluster.job(job)["Restarts"] == "1"


def test_a_gang_goes_on_with_the_nodes_that_are_left(quiet_cluster: SlurmCluster, service: Running) -> None:
    """One node is out for good, the gang loses one of its three, and its owner said that two will do."""
    *rest, out = quiet_cluster.nodes
    quiet_cluster.run("scontrol", "update", f"nodename={out}", "state=drain", "reason=broken")
    lost = rest[1]
    script = "echo nodes=$SLURM_NNODES\n[ $SLURM_NNODES = 2 ] || sleep 3600\nsrun hostname"
    job = quiet_cluster.submit(script, "--nodes=3", "--exclusive", "--comment=perdure:nodes=2-3")
    service.await_job(job, JobState.RUNNING)
    quiet_cluster.fail_node(lost)
    try:
        recovered = service.await_exception(job, "recovered")
    finally:
        quiet_cluster.return_node(lost)
    first, second = service.attempts(job)
    assert (first["state"], second["state"]) == ("node_fail", "completed")
    assert (nodes_of(first), nodes_of(second)) == (rest, [node for node in rest if node != lost])
    (row,) = service.actions(job)
    assert (row.action.kind, row.action.exclude, row.action.node_count) == ("exclude", (lost,), 2)
    assert "on 2 nodes, since 3 cannot be had" in recovered["reason"]
    assert quiet_cluster.job(job)["Restarts"] == "1"


def test_a_blind_requeue_of_what_can_only_fail_is_held(quiet_cluster: SlurmCluster, service: Running) -> None:
    """The site requeues on exit code 75; the log says that it cannot help."""
    job = quiet_cluster.submit(SHAPE.replace("exit 1", "exit 75"))
    service.await_action(job, ActionState.DONE)
    # Where we were too slow, Slurm began once more, and the first of these was superseded.
    assert {type(row.action) for row in service.actions(job)} == {Hold}
    assert quiet_cluster.job(job)["Priority"] == "0"


WRITER = """
import os, time
from pathlib import Path
from perdure.job import checkpointed
from perdure.errors import Fenced
me = os.environ["SLURMD_NODENAME"]
with open("{log}", "a") as log:
    for step in range(400):
        try:
            with checkpointed(Path("{checkpoint}")) as draft:
                Path(draft).write_text(me)
                written_s = time.time()
            log.write(f"{{written_s}} {{me}}\\n"); log.flush()  # the freeze may come between publishing and this
        except Fenced:
            raise SystemExit(93)
        if me != "node3" and step > 30:
            break
        time.sleep(0.1)
"""


def test_freeze_and_thaw_never_leave_two_incarnations_writing(
    quiet_cluster: SlurmCluster, service: Running, tmp_path: Path
) -> None:
    """The frozen node's writer wakes up beside the new one, and is fenced before it publishes again."""
    log, program = quiet_cluster.output / "writes", quiet_cluster.output / "writer.py"
    checkpoint = quiet_cluster.output / "ckpt" / "model"
    program.write_text(WRITER.format(log=log, checkpoint=checkpoint))
    script = f"{sys.executable} -m perdure exec -- {sys.executable} {program}"
    job = quiet_cluster.submit(script, "-w", "node3", f"--chdir={quiet_cluster.output}")
    await_(lambda: log.exists() and log.read_text().count("\n") > 3)
    quiet_cluster.freeze_node("node3")
    try:
        await_(lambda: any("node3" not in line for line in log.read_text().splitlines()))
        thawed_s = time.time()
    finally:
        quiet_cluster.return_node("node3")
    service.await_job(job, JobState.COMPLETED)
    lines = [line.split() for line in log.read_text().splitlines()]
    first_of_new = min(float(t) for t, node in lines if node != "node3")
    assert thawed_s > first_of_new
    assert [t for t, node in lines if node == "node3" and float(t) > first_of_new] == []
    assert checkpoint.read_text() != "node3"


def test_slurmctld_down_and_back_loses_and_doubles_nothing(
    quiet_cluster: SlurmCluster, service: Running, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = quiet_cluster.submit(GATED.format(gate=gate) + PEER_LOST)
    service.await_job(job, JobState.RUNNING)
    quiet_cluster.stop_ctld()
    try:
        gate.touch()  # it fails unseen
        await_(lambda: "controller" in service.engine.state.known.unseen)
        assert service.exceptions(job) == [], service.told(job)  # silence is not a failure
    finally:
        quiet_cluster.start_ctld()
    service.await_exception(job, "recovered")
    await_(lambda: "controller" not in service.engine.state.known.unseen)
    assert len([row for row in service.actions(job) if isinstance(row.action, Requeue)]) == 1
    assert quiet_cluster.job(job)["Restarts"] == "1"


def test_slurmdbd_down_loses_and_doubles_nothing(quiet_cluster: SlurmCluster, service: Running) -> None:
    quiet_cluster.kill_dbd()
    try:
        job = quiet_cluster.submit(PEER_LOST)
        await_(lambda: "accounting" in service.engine.state.known.unseen)
        service.await_exception(job, "recovered")
    finally:
        quiet_cluster.start_dbd()
    await_(lambda: "accounting" not in service.engine.state.known.unseen)
    assert len(service.attempts(job)) == 2
    assert quiet_cluster.job(job)["Restarts"] == "1"
