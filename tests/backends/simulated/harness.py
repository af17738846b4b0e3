"""The simulated cluster as the common checks want it: virtual time, no waiting."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.backends.check_harness import Program
from perdure.backends.simulated import EVERY, Script, SimulatedBackend, SimulatedCluster


class SimulatedHarness:
    def __init__(self) -> None:
        self.cluster = SimulatedCluster(seed=1, nodes=4)
        self.backend = SimulatedBackend(self.cluster)
        self.nodes = self.cluster.node_names
        self.since_s = self.cluster.now

    def submit(self, program: Program) -> str:
        return self.cluster.submit(
            Script(
                run_s=program.run_s,
                says=program.says,
                failures=EVERY if program.exit_code else 0,
                exit_code=program.exit_code,
                node_count=program.node_count,
                min_nodes=program.min_nodes,
                may_requeue=program.may_requeue,
            )
        )

    def moments(self) -> Iterator[None]:
        for _ in range(400):
            self.cluster.advance(0.25)
            yield

    def fail_node(self, node: str) -> None:
        self.cluster.fail_node(node)

    def return_node(self, node: str) -> None:
        self.cluster.return_node(node)

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        self.backend.silent = True
        try:
            yield
        finally:
            self.backend.silent = False


@contextmanager
def open_harness(directory: Path) -> Iterator[SimulatedHarness]:
    yield SimulatedHarness()
