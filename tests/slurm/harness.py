"""A real Slurm for the facts that every backend satisfies, and for all other tests that need one."""

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.backends.check_harness import Program
from perdure.backends.slurm.backend import SlurmBackend
from perdure.backends.slurm.tools import Tools
from tests.slurm.cluster import SlurmCluster, account_of_shared, missing, shared_cluster

PATIENCE_S = 120.0
STEP_S = 0.2


def require_slurm() -> None:
    """Skip where no cluster can be started, unless PERDURE_REQUIRE names slurm: then fail."""
    if why := missing():
        if "slurm" in os.environ.get("PERDURE_REQUIRE", "").split(","):
            pytest.fail(why)
        pytest.skip(why)


def require_cluster() -> SlurmCluster:
    """The shared cluster, if there can be one (`require_slurm`)."""
    require_slurm()
    return shared_cluster()


def account_of_failure(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put what Slurm says into the report of a test that failed, as nobody can ask it later."""
    if report.failed and item.get_closest_marker("slurm"):
        report.sections.append(("Slurm", account_of_shared()))


class SlurmHarness:
    """What `perdure.backends.checks` asks of a cluster, on a real Slurm."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self.backend = SlurmBackend(cluster.name, Tools(environment=cluster.env))
        self.nodes = cluster.nodes
        self.since_s = cluster.since_s

    def submit(self, program: Program) -> str:
        """Submit a `Program`: each task says, works and ends as told."""
        task = f"printf %s {shlex.quote(program.says)}; sleep {program.run_s:g}; exit {program.exit_code}"
        requeue = "--requeue" if program.may_requeue else "--no-requeue"
        nodes = f"--nodes={program.node_count}"
        allowed = f"--comment=perdure:nodes={program.min_nodes}-{program.node_count}" if program.min_nodes else ""
        script = task if program.node_count == 1 else f"srun sh -c {shlex.quote(task)}"
        options = (requeue, nodes, "--ntasks-per-node=1", "--exclusive", *([allowed] if allowed else []))
        return self._cluster.submit(script, *options)

    def moments(self) -> Iterator[None]:
        """Real moments, for at most `PATIENCE_S`."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            time.sleep(STEP_S)
            yield

    def fail_node(self, node: str) -> None:
        self._cluster.fail_node(node)

    def return_node(self, node: str) -> None:
        self._cluster.return_node(node)

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """No slurmctld for a while."""
        self._cluster.stop_ctld()
        try:
            yield
        finally:
            self._cluster.start_ctld()


@contextlib.contextmanager
def open_harness(directory: Path) -> Iterator[SlurmHarness]:
    """The harness on the shared cluster; it lives on, so the directory is not used."""
    cluster = require_cluster()
    harness = SlurmHarness(cluster)
    yield harness
    harness.backend.close()
    cluster.cancel_all()
