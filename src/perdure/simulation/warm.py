"""Whether a replay must compile its loop first, and compiling all of them beforehand.

``python -m perdure.simulation.warm`` compiles every loop once, so that no replay waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perdure.model.cluster import Cluster
from perdure.scheduling.placement.registry import placement_named
from perdure.scheduling.policies import POLICIES, policy_named
from perdure.simulation.compiled.cache import is_kept
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.policy_file import is_policy_file
from perdure.simulation.simulate import simulate, worth_compiling

JOBS = 50
DAY_S = 86_400.0


def must_compile(jobs: int, policies: Iterable[str], placement: str) -> bool:
    """Whether replaying this many jobs, repeats counted, under these policies begins with compiling.

    That takes 5 to 20 s. Raises `ConfigError` for an unknown placement or policy.
    """
    placed = placement_named(placement)
    named = [policy_named(policy.partition(":")[0]) for policy in policies if not is_policy_file(policy)]
    if not worth_compiling(jobs, [policy.name for policy in named], placed):
        return False
    loops = {COMPILED[type(policy)] for policy in named if type(policy) in COMPILED}
    return not all(is_kept(f"{loop}.advance") for loop in loops)


def main() -> None:
    """Replay a few jobs under each policy that has a compiled form, and a queue as `perdure when` forks it."""
    # Loaded here: each what-if asks `must_compile`, and needs none of it.
    from perdure.scheduling.placement.as_asked import AsAsked
    from perdure.scheduling.slurm.policy import Slurm
    from perdure.scheduling.slurm.settings import Partition, SchedulerSettings
    from perdure.simulation.live import LiveQueue
    from perdure.traces.generate import generate

    cluster = Cluster.parse("4x8")
    table = generate(JOBS, cluster, 0.9, np.random.default_rng(0))
    for name in POLICIES:
        if type(policy_named(name)) in COMPILED:
            simulate(table, cluster, name, engine="compiled")
    now_s = float(table.submit_s.max())
    on_nodes = Slurm(SchedulerSettings(partitions=(Partition("main", nodes=tuple(range(len(cluster.gpus)))),)))
    for policy, placement in ((Slurm(), None), (on_nodes, AsAsked((1,) * len(table)))):
        LiveQueue.at(table, now_s, cluster, policy, placement=placement).fork().advance(now_s + DAY_S)


if __name__ == "__main__":
    main()
