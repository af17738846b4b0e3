"""Two Slurm clusters of one slurmdbd, also as a federation: a backend sees and acts on the one that is named."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.model.actions import Cancel, Drain, OutcomeStatus, Requeue
from perdure.model.jobs import AttemptState, JobState
from perdure.model.nodes import NodeState
from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.test_backend import Look

pytestmark = pytest.mark.slurm


class SecondCluster(SlurmCluster):
    """A cluster that reports to the slurmdbd of another one."""

    name = "second"

    def __init__(self, directory: Path, first: SlurmCluster) -> None:
        super().__init__(directory, nodes=2, gpus=1)
        self._first = first
        self._ports = (self._ports[0], first._ports[1], first._ports[2], *self._ports[3:])

    def start(self) -> None:
        self._configure()
        shutil.copy2(self._first.directory / "etc" / "munge.key", self.directory / "etc" / "munge.key")
        self._start_munge()
        self.run("sacctmgr", "-i", "add", "cluster", self.name, check=False)
        self.start_ctld(first=True)
        for node in self.nodes:
            self.start_node(node)
        self._await_idle()


@pytest.fixture(scope="module")
def second(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondCluster]:
    directory = tmp_path_factory.mktemp("second")
    for folder in (directory, *list(directory.parents)[:-2]):
        folder.chmod(0o755)
    made = SecondCluster(directory, cluster)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        cluster.run("sacctmgr", "-i", "delete", "federation", "both", check=False)


@pytest.fixture
def other(quiet_cluster: SlurmCluster, second: SecondCluster) -> Iterator[SlurmBackend]:
    """A backend with the first one's slurm.conf, told to look at the second cluster."""
    tools = Tools(environment=quiet_cluster.env, cluster=second.name)
    with closing(SlurmBackend("other", tools)) as backend:
        yield backend
    second.cancel_all()


def test_looks_and_actions_reach_the_cluster_that_is_named(
    quiet_cluster: SlurmCluster, second: SecondCluster, other: SlurmBackend
) -> None:
    assert other.config().cluster == "second"
    job_id = second.submit('[ -n "$SLURM_RESTART_COUNT" ] && exec sleep 300; exit 1')
    look = Look(other)
    failed = look.ended(job_id)
    assert {node.name for node in other.observe(0.0).nodes} == set(second.nodes)
    assert other.perform(Drain(second.nodes[1], "test", "1")).status is OutcomeStatus.DONE
    states = {node.name: node.state for node in other.observe(0.0).nodes}
    assert states[second.nodes[1]] in (NodeState.DRAINED, NodeState.DRAINING)
    assert "drain" not in str(quiet_cluster.node_states()).lower()
    second.run("scontrol", "update", f"nodename={second.nodes[1]}", "state=resume")
    await_("the nodes to be free", lambda: second.job(job_id)["JobState"] == "FAILED")
    assert other.perform(Requeue(failed.id, delay_s=0.0)).status is OutcomeStatus.DONE
    again = look.running(job_id, 2)
    assert other.perform(Cancel(again.id)).status is OutcomeStatus.DONE
    assert look.ended(job_id, 2).state is AttemptState.CANCELLED


def test_what_slurm_has_forgotten_is_read_from_that_clusters_accounting(
    second: SecondCluster, other: SlurmBackend
) -> None:
    job_id = second.submit("exit 3")
    look = Look(other)
    assert look.ended(job_id).exit_code == 3
    second.run("scontrol", "reconfigure")
    rows = await_("accounting", lambda: other._tools.run("sacct", "-n", "-X", "-j", job_id, "-o", "state,cluster").out)
    assert b"second" in rows


def test_of_a_federation_each_cluster_shows_its_own_part(
    quiet_cluster: SlurmCluster, second: SecondCluster, other: SlurmBackend
) -> None:
    """A job that may run on either has a record on both; where it does not run it is revoked, which is no failure."""
    quiet_cluster.run("sacctmgr", "-i", "add", "federation", "both", f"clusters={quiet_cluster.name},second")
    here = SlurmBackend("here", Tools(environment=quiet_cluster.env))
    try:
        await_("the federation", lambda: "Synced:Yes" in quiet_cluster.run("scontrol", "show", "federation"))
        job_id = quiet_cluster.submit("sleep 300")
        seen = {"here": Look(here), "other": Look(other)}

        def states() -> set[JobState]:
            found = {name: look.job(job_id) for name, look in seen.items()}
            return {job.state for job in found.values() if job is not None}

        await_("one to run it", lambda: JobState.RUNNING in states() and JobState.PENDING not in states())
        time.sleep(3.0)
        assert states() <= {JobState.RUNNING, JobState.CANCELLED}
        ran = [attempt for look in seen.values() for attempt in look.attempts(job_id)]
        assert [attempt.state for attempt in ran if not attempt.state.is_over] == [AttemptState.RUNNING]
        assert not any(attempt.state.is_failure for attempt in ran)
    finally:
        here.close()
        quiet_cluster.cancel_all()
        quiet_cluster.run("sacctmgr", "-i", "delete", "federation", "both")
