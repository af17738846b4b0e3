"""A node that freezes is given up by Perdure's own watch before Slurm notices, and its job runs on elsewhere."""

from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster, await_
from tests.slurm.site import Site

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

TRAINS = """
import os, time
from perdure.job import beat
for step in range(600 if os.environ["SLURMD_NODENAME"] == "node2" else 3):
    beat(step)
    time.sleep(1)
"""


def test_a_frozen_node_is_given_up_before_slurm_notices(quiet_cluster: SlurmCluster, tmp_path: Path) -> None:
    """Agent and launcher fall silent together. Slurm itself would write "Not responding" into the node's reason."""
    with quiet_cluster.configured("SlurmdTimeout=300"):  # Slurm's stock value
        site = Site(quiet_cluster, tmp_path).start()
        try:
            for node in quiet_cluster.nodes:
                site.start_agent(node)
            job = site.python(TRAINS, "-w", "node2")
            await_("a heartbeat", lambda: list(site.fences.glob(f"{job}/**/heartbeat*")), 60)
            site.await_known(job)
            quiet_cluster.freeze_node("node2")
            try:
                await_("node2 down", lambda: quiet_cluster.node_states()["node2"].startswith("down"), 120)
                reason = quiet_cluster.run("sinfo", "-h", "-n", "node2", "-o", "%E")
                site.await_outcome(job, "recovered", 150)
            finally:
                quiet_cluster.return_node("node2")
            assert reason.startswith("perdure: node.unreachable")
            (record,) = site.ask("/exceptions", type="node.unreachable")
            assert sorted(record["evidence"]) == ["agent", f"job {job}"]
            assert [row["State"] for row in quiet_cluster.ends(job)] == ["NODE_FAIL", "COMPLETED"]
            site.check_history(job)
        finally:
            site.stop()
