"""``python -m perdure.simulation.compiled.warm``: compile every loop once, so that no replay waits for it."""

from __future__ import annotations

import numpy as np

from perdure.model.cluster import Cluster
from perdure.simulation.simulate import simulate
from perdure.traces.generate import generate

POLICIES = ("fifo", "srtf", "las-2d", "gittins-2d", "easy", "conservative", "philly", "capacity", "drf")
JOBS = 50


def main() -> None:
    """Replay a few jobs under a policy of each compiled loop."""
    cluster = Cluster.parse("4x8")
    table = generate(JOBS, cluster, 0.9, np.random.default_rng(0))
    for policy in POLICIES:
        simulate(table, cluster, policy, engine="compiled")


if __name__ == "__main__":
    main()
