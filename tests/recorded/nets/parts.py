"""Small parts of policies, asked by themselves: limits and shares of Slurm, Sia's choice, what is learned."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from perdure.model.cluster import Cluster
from perdure.scheduling.gavel import GavelRound, early_enough, equal_share, first_come, least_attained, total_throughput
from perdure.scheduling.placement.registry import placement_named, room_of
from perdure.scheduling.sia import Configurations, choose, normalised, restart_factor
from perdure.scheduling.slurm.fair_tree import ShareTree, fair_shares, level_fs
from perdure.scheduling.slurm.limits import ARRAY, LimitCounts, LimitHolder, refusal
from perdure.scheduling.slurm.node_space import taken_together
from perdure.scheduling.slurm.policy import Slurm, SlurmRanking
from perdure.scheduling.slurm.priority import Sizes, age_factor, priority, size_factor
from perdure.scheduling.slurm.priority import normalised as of_largest
from perdure.scheduling.slurm.settings import PrioritySettings, RunningLimits
from perdure.scheduling.slurm.usage import DecayedUsage, decay_of
from perdure.scheduling.tuning import TUNERS
from perdure.simulation.allocation import Passes
from perdure.simulation.manifest import Manifest
from perdure.simulation.plain import PlainLoop
from perdure.simulation.workload import Workload
from perdure.throughput.learned import LearnedSpeed
from tests.recorded.drawn import in_words
from tests.recorded.whole_runs import Case, rounded
from tests.simulation.worlds import full_world


def cases() -> Iterator[Case]:
    for seed in range(40):
        yield f"holds {seed}", partial(_held, seed)
    for seed in range(20):
        for name, answer in PARTS.items():
            yield f"{name} {seed}", partial(answer, np.random.default_rng([seed, 30]))


def _held(seed: int) -> str:
    """At each instant of a replay under Slurm, what holds each job that waits."""
    world = full_world(seed)
    jobs = Workload.of(world.table)
    room = room_of(world.cluster, placement_named(world.placement), jobs.ticks_per_s)
    loop = PlainLoop.of(jobs, room, Slurm(world.options.slurm), None)
    assert isinstance(loop.giver, Passes)
    ranking, told = loop.giver.ranking, list[object]()
    assert isinstance(ranking, SlurmRanking)
    while (now := loop.next_instant()) is not None:
        loop.happen(now)
        told.append((now, [(row, ranking.hold(row)) for row in loop.world.view.waiting]))
    return f"{len(told)} instants {in_words(told)}"


def _limits(rng: np.random.Generator) -> object:
    """Holders with drawn limits, jobs that start and end under them, and what each further job is told."""

    def some() -> int | None:
        return (None, None, 0, 1, 2, 5, 8)[rng.integers(7)]

    holders = tuple(
        LimitHolder(
            str(rng.choice(["QOS", "Assoc", ARRAY])), key, int(rng.integers(2)),
            RunningLimits(some(), some(), some(), some(), some(), (None, 60.0, 600.0)[rng.integers(3)]),
        )
        for key in range(3)
    )  # fmt: skip
    counts, told = LimitCounts(), list[object]()
    for _ in range(8):
        own, gpus = tuple(each for each in holders if rng.random() < 0.6), int(rng.integers(1, 5))
        told.append((counts.reason(own, gpus), refusal(own, gpus, float(rng.choice([0, 60, 61, 600, 900])))))
        counts.hold(own, gpus if rng.random() < 0.7 else -gpus)
    return told, [each.limits.unless_in([holders[0].limits]) for each in holders]


def _tree(rng: np.random.Generator) -> object:
    """A tree with equal shares and usages here and there, users beside accounts, and some who used nothing."""
    n = int(rng.integers(3, 14))
    is_user = [False, *(bool(rng.random() < 0.6) for _ in range(n - 1))]
    parent = [0]
    for node in range(1, n):
        parent.append(int(rng.choice([each for each in range(node) if not is_user[each]])))
    tree = ShareTree(tuple(parent), tuple(rng.integers(0, 3, n).tolist()), tuple(is_user))
    usage = [float(rng.choice([0, 10, 10, 25])) if user else 0.0 for user in is_user]
    return fair_shares(tree, usage) if any(is_user) else (), level_fs(tree, usage)


def _usage(rng: np.random.Generator) -> object:
    found, now, told = DecayedUsage(3, 10, decay_of(10, float(rng.choice([0, 30, 900]))), (5.0, 0.0, 1.0)), 0, []
    if rng.random() < 0.5:
        found.count_from(int(rng.integers(0, 30)))
    for _ in range(12):
        now += int(rng.choice([0, 1, 9, 10, 25]))
        found.hold(int(rng.integers(3)), int(rng.integers(-2, 4)), max(now, found.calculated))
        told.append((list(found.used), list(found.added)))
    return told


def _priority(rng: np.random.Generator) -> object:
    flags = frozenset(rng.choice(["SMALL_RELATIVE_TO_TIME", "NO_NORMAL_QOS"], rng.integers(0, 3)).tolist())
    how = PrioritySettings(favor_small=bool(rng.random() < 0.5), flags=flags)
    sizes = Sizes(rng.uniform(1, 9, 4), rng.uniform(1, 70, 4), 8.0, 64.0)
    ages = [age_factor(now, since, most) for now in (0, 10, 90) for since in (0, 10) for most in (0, 20)]
    sums = [priority(*rng.uniform(-5, 9, 3)), priority(5e9, 0, 0), priority(0.0, 0.4, 0.5)]
    values = rng.integers(-1, 3, 4).astype(float)
    return (
        size_factor(sizes, how, rng.uniform(0, 90, 4)),
        ages,
        sums,
        of_largest(values, values.max(), "NO_NORMAL_QOS", how),
    )


def _ends(rng: np.random.Generator) -> object:
    ends = rng.integers(1, 900, rng.integers(0, 9)).tolist()
    return [taken_together(ends, window) for window in (0, 1, 30, 60)]


def _sia(rng: np.random.Generator) -> object:
    """Few values, so that choices tie; the fewest GPUs are taken then."""
    nodes, size = rng.integers(1, 3, 2), np.array([4, 2])
    configs = Configurations.of_cluster(nodes, size)
    jobs = int(rng.integers(1, 7))
    goodput = rng.choice([1.0, 2.0, 2.0, 4.0, np.nan, 0.0], (jobs, len(configs.gpus)))
    goodput[:, 0] = 1.0
    found = choose(goodput, configs, nodes * size)
    ages = restart_factor(np.array([10.0, 30.0, 300.0, 50.0]), np.array([0, 1, 3, 9]), np.full(4, 30.0))
    return (
        found.objective,
        configs.gpus[found.config[found.config >= 0]].sum(),
        found.config,
        ages,
        normalised(goodput, np.arange(1, jobs + 1)),
    )


def _gavel(rng: np.random.Generator) -> str:
    """The values of programs alone: of equal solutions another solver may take another."""
    jobs = int(rng.integers(2, 6))
    cluster = GavelRound.of(
        rng.uniform(0.5, 4, (jobs, 2)), rng.integers(1, 4, 2).astype(float), rng.choice([1.0, 2.0], jobs)
    )
    values = [
        least_attained(cluster).value, total_throughput(cluster, np.array([1.0, 2.5])).value,
        first_come(cluster, rng.permutation(jobs)).value, early_enough(cluster, rng.uniform(50, 5000, jobs)).value,
    ]  # fmt: skip
    return rounded(in_words((values, equal_share(cluster), cluster.blind().throughput)), 4)


def _learned(rng: np.random.Generator) -> str:
    """Steps that are seen one after the other, and when they make the model another one."""
    found, told = LearnedSpeed("net on t4", {}), list[object]()
    for _ in range(7):
        nodes = int(rng.integers(1, 3))
        place = nodes, nodes * int(rng.integers(1, 3)), int(rng.choice([8, 32]))
        step_s = 0.1 + place[2] / place[1] * float(rng.choice([0.01, 0.0101, 0.05]))
        found.see(place, step_s, step_s * 0.8)
        told.append((place, found.stale, found.most_gpus(), rng.random() < 0.5 and found.model() is not None))
    return in_words(told)


def _tuner(rng: np.random.Generator) -> object:
    total = int(rng.integers(1, 90))
    goings = sorted({int(each) for each in rng.integers(1, total + 1, 5)})
    return [
        (name, [(tuner.rung(total, going), tuner.keeps(total, going), tuner.is_over(going - 1)) for going in goings])
        for name, tuner in TUNERS.items()
    ]


def _command(rng: np.random.Generator) -> object:
    values = (None, False, True, 0, "", "a b", 3, 0.5, "x'y")
    options: dict[str, object] = {f"option_{place}": values[rng.integers(len(values))] for place in range(6)}
    if rng.random() < 0.5:
        options |= {"traces": ["a.csv", "b c.csv"], "seeds": 3}
    found = Manifest.of(options, list[Path](), Cluster.parse("2x4+1x8"))
    return found.command, found.options, found.cluster, found.seeds


PARTS = {
    "limits": _limits, "tree": _tree, "usage": _usage, "priority": _priority, "ends": _ends, "sia": _sia,
    "gavel": _gavel, "learned": _learned, "tuner": _tuner, "command": _command,
}  # fmt: skip
