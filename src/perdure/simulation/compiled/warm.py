"""``python -m perdure.simulation.compiled.warm``: compile every loop once, so that no replay waits for it."""

from __future__ import annotations

import numpy as np

from perdure.model.cluster import Cluster
from perdure.scheduling.policies import POLICIES, policy_named
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.simulate import simulate
from perdure.traces.generate import generate

JOBS = 50


def main() -> None:
    """Replay a few jobs under each policy that has a compiled form."""
    cluster = Cluster.parse("4x8")
    table = generate(JOBS, cluster, 0.9, np.random.default_rng(0))
    for name in POLICIES:
        if type(policy_named(name)) in COMPILED:
            simulate(table, cluster, name, engine="compiled")


if __name__ == "__main__":
    main()
