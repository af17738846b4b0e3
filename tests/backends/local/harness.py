"""The embedded cluster as the backend checks want it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.backends.check_harness import Program
from perdure.backends.local import JobSpec, LocalBackend, start_daemon, stop_daemon
from perdure.backends.local.records import Timing

FAST = Timing(detect_s=0.1, kill_wait_s=0.5, thaw_s=0.2)
PATIENCE_S = 60.0

_PROGRAM = """
import sys, time
print(sys.argv[1], flush=True)
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


def python(code: str, *arguments: str) -> tuple[str, ...]:
    """The command line of a small Python program that starts fast."""
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


def moments() -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.01)
        yield


@dataclass
class LocalHarness:
    state_dir: Path
    backend: LocalBackend
    nodes: tuple[str, ...]
    since_s: float

    def submit(self, program: Program) -> str:
        return self.backend.submit(
            JobSpec(
                python(_PROGRAM, program.says, str(program.run_s), str(program.exit_code)),
                node_count=program.node_count,
                min_nodes=program.min_nodes,
                may_requeue=program.may_requeue,
                workdir=str(self.state_dir),
            )
        )

    def moments(self) -> Iterator[None]:
        return moments()

    def fail_node(self, node: str) -> None:
        self.backend.fault(node, "fail")

    def return_node(self, node: str) -> None:
        self.backend.fault(node, "return")

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        stop_daemon(self.state_dir)
        yield
        start(self.state_dir)


def start(state_dir: Path, **options: Any) -> int:
    return start_daemon(state_dir, **{"nodes": 4, "timing": FAST, **options})


@contextmanager
def open_harness(directory: Path) -> Iterator[LocalHarness]:
    state = directory / "cluster"
    start(state)
    try:
        backend = LocalBackend(state)
        seen = backend.observe(0.0)
        yield LocalHarness(state, backend, tuple(node.name for node in seen.nodes), seen.time_s)
    finally:
        stop_daemon(state)
