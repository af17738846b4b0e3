"""A node without a mount that the others have: jobs of several users fail there alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.site import Site

pytestmark = pytest.mark.slurm

LOST = """
if [ "$SLURMD_NODENAME" = node2 ]; then
  echo "FileNotFoundError: [Errno 2] No such file or directory: '/datasets/coco/annotations.json'" >&2
  exit 1
fi
echo step 1; sleep 4; echo done
"""
MISTAKE = "echo \"FileNotFoundError: [Errno 2] No such file or directory: '/datasets/typo'\" >&2; exit 1"


@pytest.fixture
def site(quiet_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Site]:
    one = Site(quiet_cluster, tmp_path)
    yield one.start()
    one.stop()


def test_jobs_go_away_from_a_node_that_lost_a_mount(site: Site) -> None:
    """One who passed elsewhere is probed there; after three of two users, others are retried; who errs is stopped."""
    cluster = site.cluster
    passed = cluster.submit(LOST, "-J", "eval", "-w", "node3")
    site.await_known(passed)
    cluster.wait(passed, lambda fields: fields["JobState"] == "COMPLETED")
    failed = cluster.submit(LOST, "-J", "eval", "-w", "node2")
    site.await_outcome(failed, "recovered")
    (requeue,) = site.actions(failed)
    assert requeue["exclude"] == ["node2"]
    assert "jobs of this name passed on node3, and none on node2 since" in requeue["reason"]
    wrong = cluster.submit(MISTAKE, "-J", "typo", "-w", "node3")
    site.await_outcome(wrong, "stopped")
    first = cluster.submit(LOST, "-J", "tune", "-w", "node2", user="nobody")
    site.await_outcome(first, "stopped")  # nothing yet tells it from a mistake
    later = cluster.submit(LOST, "-J", "bench", "-w", "node2", user="daemon")
    site.await_outcome(later, "recovered")
    assert "the last 3 jobs on node2, of 3 users, all lacked something there" in site.actions(later)[0]["reason"]
