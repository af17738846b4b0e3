"""The simulated cluster as the common checks want it: virtual time, no waiting."""

from contextlib import contextmanager

from perdure.backends.simulated import EVERY, Script, SimulatedBackend, SimulatedCluster


class SimulatedHarness:
    def __init__(self):
        self.cluster = SimulatedCluster(seed=1, nodes=4)
        self.backend = SimulatedBackend(self.cluster)
        self.nodes = self.cluster.node_names
        self.since_s = self.cluster.now

    def submit(self, program):
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

    def moments(self):
        for _ in range(400):
            self.cluster.advance(0.25)
            yield

    def fail_node(self, node):
        self.cluster.fail_node(node)

    def return_node(self, node):
        self.cluster.return_node(node)

    @contextmanager
    def cut_off(self):
        self.backend.silent = True
        try:
            yield
        finally:
            self.backend.silent = False


@contextmanager
def open_harness(directory):
    yield SimulatedHarness()
