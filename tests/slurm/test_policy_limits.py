"""A policy on a real Slurm whose accounts have limits: nobody makes room for a start that Slurm would refuse."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from perdure.live_policy.settings import PolicySettings
from perdure.service.live_policy.policy_store import PolicyStore
from perdure.service.live_policy.switch import PolicySwitch
from perdure.service.live_policy.worker import PolicyWorker
from perdure.service.store.journal import Journal
from tests.slurm.cluster import SlurmCluster
from tests.slurm.harness import require_slurm

pytestmark = pytest.mark.slurm

CONF = "PriorityType=priority/multifactor\nAccountingStorageEnforce=associations,limits\n"


@pytest.mark.parametrize(("most", "planned"), [(4, 1), (8, 2)])
def test_an_account_is_planned_no_more_than_it_may_have(tmp_path: Path, most: int, planned: int) -> None:
    """Nothing of the account runs yet: to Slurm each of its jobs waits for room, or for its turn."""
    require_slurm()
    directory = Path(tempfile.mkdtemp(prefix="perdure-slurm-", dir="/tmp"))  # socket paths must be short
    cluster = SlurmCluster(directory, 2, 4, CONF)
    cluster.start()
    backend = SlurmBackend(cluster.name, Tools(timeout_s=30.0, environment=cluster.env))
    settings = PolicySettings("las-2d", first_limit_s=1.0, second_limit_s=1000.0, least_run_s=0.0)
    try:
        for account in ("lab", "far"):
            cluster.run("sacctmgr", "-i", "add", "account", account)
            cluster.run("sacctmgr", "-i", "add", "user", "root", f"account={account}")
        cluster.run("sacctmgr", "-i", "modify", "account", "lab", "set", f"GrpTRES=gres/gpu={most}")
        asks = ("--gres=gpu:4", "--time=10", "--requeue", "--comment=perdure:preempt")
        for _ in range(2):
            cluster.wait(cluster.submit("sleep 600", *asks, "--account=far"), lambda job: job["JobState"] == "RUNNING")
        job_id = [cluster.submit("sleep 600", *asks, "--account=lab") for _ in range(2)][-1]
        cluster.wait(job_id, lambda job: job["Reason"] in ("Priority", "Resources"))
        time.sleep(2.0)  # both that run have had more than the first limit
        backend.queue()
        with closing(Journal.open(tmp_path / "state", "perdure")) as journal:
            worker = PolicyWorker(
                backend, PolicyStore(journal.store, "perdure"), settings, PolicySwitch(tmp_path), lambda: False,
                lambda: (), lambda *_: None, lambda: 0.0,
            )  # fmt: skip
            backend.observe(0.0)
            worker.turn()
        assert worker.latest is not None
        assert len(worker.latest.preemptions) == planned
    finally:
        backend.close()
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
