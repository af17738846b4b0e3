"""Schedules of crowded worlds under every policy: each column of the result, by the plain loop and the compiled one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec

from perdure.scheduling.policies import POLICIES
from perdure.scheduling.protocol import Policy
from perdure.simulation.result import Result
from perdure.simulation.simulate import simulate
from tests.recorded.drawn import in_words
from tests.recorded.whole_runs import Case, rounded
from tests.simulation.worlds import VARIANTS, answer, full_world

WITH_ARGUMENT = ("sjf:skip", "las:2", "las-2d:0.5", "capacity:1.5", "philly:1.5", "conservative:replan")
SEEDS, SEEDS_OF_SLURM = 10, 30


def cases() -> Iterator[Case]:
    for policy in (*POLICIES, *WITH_ARGUMENT, *VARIANTS):
        for seed in range(SEEDS_OF_SLURM if policy == "slurm" else SEEDS):
            yield f"{policy} {seed}", partial(schedule, seed, policy)


def schedule(seed: int, policy: str | Policy) -> str:
    """All that a replay tells; where the compiled loop runs, what it tells besides spans is the same."""
    world = full_world(seed)
    plain = simulate(
        world.table, world.cluster, policy, world.placement, answer if world.asks else None,
        options=world.options, engine="plain", faults=world.faults, cost=world.cost, spans=True,
    )  # fmt: skip
    if find_spec("numba"):
        fast = world.replay(policy, "compiled")
        assert (fast.digest(), fast.busy_gpu_s, fast.events) == (plain.digest(), plain.busy_gpu_s, plain.events)
    return f"{head(plain)} {rounded(in_words(plain), 9)}"


def head(result: Result) -> str:
    log = result.attempts
    mean_s = float(result.end_s.mean())
    return (
        f"{result.placement}: makespan {result.makespan_s:g}, mean end {mean_s:.1f}, "
        f"{result.preempted.sum()} preempted, {(~log.passed).sum()} failed"
    )
