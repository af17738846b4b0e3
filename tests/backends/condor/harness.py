"""A real HTCondor for the facts that every backend satisfies."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from perdure.backends.check_harness import Program
from perdure.backends.condor.backend import CondorBackend
from perdure.backends.condor.settings import CondorSettings
from perdure.backends.condor.tools import CondorTools
from tests.backends.condor.pool import CondorPool, missing

PATIENCE_S = 120.0
STEP_S = 0.3


class CondorHarness:
    """What `perdure.backends.checks` asks of a cluster, on a real HTCondor."""

    def __init__(self, pool: CondorPool) -> None:
        self.pool = pool
        self.backend = CondorBackend("pool", CondorTools(CondorSettings(), pool.env))
        self.nodes = pool.nodes
        self.since_s = pool.since_s

    def submit(self, program: Program) -> str:
        """Submit a `Program`: each task says, works and ends as told. A gang is a job of the parallel universe."""
        script = f"printf %s {shlex.quote(program.says)}; sleep {program.run_s:g}; exit {program.exit_code}"
        lines = ["on_exit_hold = ExitBySignal || ExitCode != 0"] if program.may_requeue else []
        if program.node_count > 1:
            lines += ["universe = parallel", f"machine_count = {program.node_count}"]
            lines += ['+ParallelShutdownPolicy = "WAIT_FOR_ALL"']
        if program.min_nodes:
            lines += [f'+Perdure = "nodes={program.min_nodes}-{program.node_count}"']
        lines += ["allowed_job_duration = 7200"]
        return self.pool.submit(script, *lines)

    def moments(self) -> Iterator[None]:
        """Real moments, for at most `PATIENCE_S`."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            time.sleep(STEP_S)
            yield

    def fail_node(self, node: str) -> None:
        self.pool.fail_node(node)

    def return_node(self, node: str) -> None:
        self.pool.return_node(node)

    def cut_off(self) -> AbstractContextManager[None]:
        return self.pool.without_schedd()


@contextlib.contextmanager
def open_pool() -> Iterator[CondorPool]:
    """A pool that ends with the block. Skips where none can be started, unless PERDURE_REQUIRE names condor."""
    if why := missing():
        (pytest.fail if "condor" in os.environ.get("PERDURE_REQUIRE", "").split(",") else pytest.skip)(why)
    with tempfile.TemporaryDirectory(prefix="condor-", ignore_cleanup_errors=True) as directory:
        pool = CondorPool(Path(directory))
        try:
            pool.start()
            yield pool
        finally:
            pool.stop()


@contextlib.contextmanager
def open_harness(directory: Path) -> Iterator[CondorHarness]:
    with open_pool() as pool:
        harness = CondorHarness(pool)
        try:
            yield harness
        finally:
            harness.backend.close()
