"""Hooks under a real Slurm: what they drop is read, and tells the truth."""

import pytest

from perdure.backends.slurm.spool import Spool
from perdure.coordination.bridges.registry import read
from tests.slurm.cluster import SlurmCluster, await_

pytestmark = pytest.mark.slurm


def test_a_trigger_tells_of_a_node_that_is_down(quiet_cluster: SlurmCluster) -> None:
    """Slurm fires triggers every 15 s at most."""
    spool = Spool(quiet_cluster.events)
    spool.take()
    program = f"--program={quiet_cluster.directory}/etc/strigger down"
    quiet_cluster.run("strigger", "--set", "--node=node4", "--down", program)
    quiet_cluster.run("scontrol", "update", "nodename=node4", "state=down", "reason=tested")
    try:
        (notice,) = await_("a trigger", lambda: spool.take().notices)
        (record,) = read("slurm", notice, quiet_cluster.name, 4e9).records
        assert (record.type, record.subject.nodes, record.severity) == ("node.down", ("node4",), 0)
        line = quiet_cluster.run("scontrol", "show", "node", "-o", "node4")
        (seen,) = read("slurm", line, quiet_cluster.name, 4e9).records
        assert (seen.type, seen.note, seen.subject.nodes) == ("node.down", "tested", ("node4",))
    finally:
        quiet_cluster.return_node("node4")
