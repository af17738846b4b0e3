"""End to end on the embedded cluster: a gang goes on with the nodes that are left, and grows when there are more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.backends.local.records import Timing
from perdure.model.actions import Drain, Undrain
from perdure.model.jobs import JobState
from perdure.retry.rules import RetryRules
from perdure.service.core.settings import ControllerSettings
from tests.e2e.service import await_, running

QUICK = ControllerSettings(retry=RetryRules(back_off_s=0.2))
FEW = """
import os, sys, time
from pathlib import Path
print("step 1 of", os.environ["WORLD_SIZE"], flush=True)
if os.environ["WORLD_SIZE"] == "2":
    while not Path("{gate}").exists():
        time.sleep(0.05)
    raise ConnectionResetError(104, "Connection reset by peer")
if os.environ["PERDURE_INCARNATION"] == "3":
    sys.exit(0)
time.sleep(3600)
"""


def test_a_gang_loses_a_node_for_good_and_gets_another_at_a_later_restart(tmp_path: Path) -> None:
    home, gate = tmp_path / "cluster", tmp_path / "gate"
    start_daemon(home, nodes=4, gpus=1, timing=Timing(detect_s=0.3))
    try:
        cluster = LocalBackend(home)
        cluster.perform(Drain("n4", "broken", "1"))
        with running(cluster, tmp_path / "service", settings=QUICK) as service:
            argv = (sys.executable, "-c", FEW.format(gate=gate))
            job = cluster.submit(JobSpec(argv=argv, user="ada", gpus_per_node=1, node_count=3, min_nodes=2))
            service.await_job(job, JobState.RUNNING)
            cluster.fault("n2", "fail")
            await_(lambda: len(service.attempts(job)) == 2, words=lambda: service.told(job))
            cluster.perform(Undrain("n4", "1"))
            await_(lambda: service.engine.state.known.nodes["n4"].is_usable)
            gate.touch()
            service.await_job(job, JobState.COMPLETED)
            nodes = [json.loads(attempt["payload"])["nodes"] for attempt in service.attempts(job)]
            kinds = [(row.action.kind, row.action.node_count) for row in service.actions(job)]
    finally:
        stop_daemon(home)
    assert nodes == [["n1", "n2", "n3"], ["n1", "n3"], ["n1", "n3", "n4"]]
    assert kinds == [("exclude", 2), ("requeue", 3)]
