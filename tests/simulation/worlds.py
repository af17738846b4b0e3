"""Crowded worlds of a few small nodes, drawn at random: all that a schedule depends on but the policy."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.table import Attempts, JobTable
from perdure.scheduling.live_limits import LiveLimits
from perdure.scheduling.maxmin import MaxMin
from perdure.scheduling.philly import Philly
from perdure.scheduling.policies import PolicyOptions
from perdure.scheduling.protocol import Policy
from perdure.scheduling.slurm.settings import (
    Association,
    BackfillSettings,
    MainSettings,
    Partition,
    PrioritySettings,
    PriorityWeights,
    Qos,
    RunningLimits,
    SchedulerSettings,
)
from perdure.scheduling.tetris import Tetris
from perdure.simulation.faults import NodeFaults
from perdure.simulation.restart_cost import FREE, RestartCost
from perdure.simulation.result import Result
from perdure.simulation.retry_hook import Again, FailedRun
from perdure.simulation.simulate import Engine, simulate
from perdure.simulation.workload import Workload

VARIANTS: list[Policy] = [
    MaxMin(3.0),
    MaxMin(40.0),
    Tetris(packing=0.0),
    Tetris(packing=20.0),
    Philly({"a": 4.0, "b": 3.0, "c": 5.0}, crowded=0.75),
]
PLACES = ["count", "first-fit", "best-fit", "consolidate", "ladder:15", "spread-ladder:15"]
WORLDS = 48


@dataclass(frozen=True)
class World:
    """All that a schedule depends on but the policy."""

    table: JobTable
    faults: NodeFaults | None
    cluster: Cluster
    placement: str
    asks: bool
    options: PolicyOptions
    cost: RestartCost

    def replay(self, policy: str | Policy, engine: Engine) -> Result:
        return simulate(
            self.table, self.cluster, policy, self.placement, answer if self.asks else None,
            options=self.options, engine=engine, faults=self.faults,
            cost=self.cost,
        )  # fmt: skip


def answer(failed: FailedRun) -> Again | None:
    """A retry policy that depends on all that it is told."""
    chance = zlib.crc32(repr(failed).encode())
    return (None, Again(), Again(3.0), Again(avoid=failed.nodes), Again(1.0, (failed.bad,) if failed.bad >= 0 else ()))[
        chance % 5
    ]


@cache
def world(seed: int) -> World:
    """A crowd of jobs that meet, tie and repeat, on a few small nodes."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 70))
    submit = np.sort(rng.integers(0, rng.choice([5, 50, 200]), n)).astype(float)
    if rng.random() < 0.2:
        submit = np.sort(rng.random(n) * 50)
    duration = rng.integers(0, rng.choice([3, 40, 200]), n).astype(float)
    walltime = np.where(rng.random(n) < rng.choice([0, 0.7, 1]), np.ceil(duration * rng.uniform(0.7, 3, n)), np.nan)
    attempts = _attempts(n, rng) if rng.random() < 0.7 else None
    gpus = rng.choice([1, 2, 3, 4, 8, 12], n, p=[0.4, 0.2, 0.1, 0.15, 0.1, 0.05])
    table = JobTable(
        np.arange(n).astype(str), submit, gpus, duration,
        vc=rng.choice(list("abc"), n), user=rng.choice(list("xyz"), n), walltime_s=walltime, attempts=attempts,
    )  # fmt: skip
    quotas = dict(zip("abc", rng.integers(0, 12, 3).astype(float).tolist(), strict=True)) if rng.random() < 0.7 else {}
    samples = tuple(rng.integers(1, 200, 4).astype(float).tolist()) if rng.random() < 0.5 else ()
    faults = _faults(Workload.of(table), rng) if rng.random() < 0.6 else None
    cluster = Cluster.parse(str(rng.choice(["3x4+1x8", "2x8", "5x4", "1x12+2x2"])), rack_nodes=int(rng.integers(0, 3)))
    asks, compat = bool(rng.random() < 0.6), "tiresias" if rng.random() < 0.3 else None
    table, site = _asking(table, rng), _site(rng)
    options = PolicyOptions((20.0, 60.0), samples, quotas, compat, site)  # type: ignore[arg-type]
    cost = RestartCost(((2, 3.0),), 7.0) if rng.random() < 0.5 else FREE
    return World(table, faults, cluster, PLACES[seed % len(PLACES)], asks, options, cost)


@cache
def full_world(seed: int) -> World:
    """The same with what only the plain loop knows in some: CPUs and memory, limits, nodes of partitions, arrays."""
    each, rng = world(seed), np.random.default_rng([seed, 1])
    table, cluster, options = _depending(each.table, rng), each.cluster, each.options
    if rng.random() < 0.4:
        table = replace(table, cpus=rng.integers(0, 3, len(table)) * table.gpus, mem_mib=table.gpus * 512)
        cluster = replace(cluster, cpus=cluster.gpus * 2, mem_mib=cluster.gpus * 1024)
    if rng.random() < 0.4:
        every_s, least_s, away_s = (float(rng.choice(some)) for some in ([1, 7], [2, 20], [0, 3, 15]))
        limits = LiveLimits(every_s, least_s, int(rng.integers(1, 5)), int(rng.integers(1, 5)), away_s)
        options = replace(options, limits=limits)
    if rng.random() < 0.5:
        options = replace(options, slurm=_on_nodes(options.slurm, len(cluster), rng))
    places = [*PLACES, "skew:0.5", "random", "skew", "ladder:3"]
    return replace(each, table=table, cluster=cluster, options=options, placement=places[seed % len(places)])


def _depending(table: JobTable, rng: np.random.Generator) -> JobTable:
    """The jobs, of which some wait for earlier ones, come in arrays, or name how many nodes they are to have."""
    n = len(table)
    kinds = ["afterany", "after", "afterok", "afternotok", "singleton"][: int(rng.choice([2, 2, 5]))]
    words = [
        kind if (kind := str(rng.choice(kinds))) == "singleton" else f"{kind}:{rng.integers(0, max(row, 1))}"
        for row in range(n)
    ]
    some = rng.random(n) < rng.choice([0, 0.1, 0.4])
    columns: dict[str, Any] = {"dependency": np.where(some, words, "")}
    if rng.random() < 0.4:
        columns["array"] = np.where(rng.random(n) < 0.5, rng.choice(["12%2", "13%1", "14"], n), "")
    if rng.random() < 0.4:
        columns["nodes"] = np.where(rng.random(n) < 0.5, -(-table.gpus // 4), 0)
    return replace(table, **columns)


def _on_nodes(site: SchedulerSettings, nodes: int, rng: np.random.Generator) -> SchedulerSettings:
    """The site, with partitions that have nodes of their own, some shared, and more kinds of limits."""
    first = Partition(
        "p", tuple(range(nodes - 1)), max_time_s=float(rng.choice([60, 900])), priority_job_factor=2, qos="low"
    )
    second = Partition(
        "q",
        is_default=True,
        whole_nodes=bool(rng.random() < 0.4),
        default_time_s=30.0,
        max_nodes=int(rng.choice([1, 2, 9])),
        priority_tier=int(rng.choice([1, 2])),
    )
    limits = RunningLimits(
        grp_jobs=int(rng.choice([2, 30])),
        max_gpus_per_job=int(rng.choice([4, 12])),
        max_wall_s=float(rng.choice([100, 1000])),
    )
    qos = (Qos("high", 10, limits, over_partition=bool(rng.random() < 0.5)), *site.qos[1:])
    weights = replace(site.priority.weights, assoc=int(rng.choice([0, 40])), tres={"gres/gpu": 20, "cpu": 5})
    how = replace(site.priority, weights=weights, favor_small=bool(rng.random() < 0.3))
    return replace(site, priority=how, partitions=(first, second), qos=qos, nodes=nodes, cpus=4 * nodes)


def _asking(table: JobTable, rng: np.random.Generator) -> JobTable:
    """The jobs, with what some of them ask of Slurm."""
    n, columns = len(table), {}
    if rng.random() < 0.7:
        columns |= {"partition": rng.choice(["p", "q", "other"], n), "qos": rng.choice(["high", "low", ""], n),
                    "account": rng.choice(["lab", "team", "other", "new"], n)}  # fmt: skip
    if rng.random() < 0.5:
        later = rng.choice([0.0, 7.0, 40.0], n, p=[0.7, 0.2, 0.1])
        columns |= {"nice": rng.integers(-30, 30, n), "eligible_s": table.submit_s + later}
    return replace(table, **columns)


def _site(rng: np.random.Generator) -> SchedulerSettings:
    """A site's Slurm whose every setting matters to jobs of a few seconds."""

    def some(*values: float) -> int:
        return int(rng.choice(values))

    weights = PriorityWeights(age=some(0, 50, 1000), job_size=some(0, 100), partition=some(0, 20), qos=some(0, 30),
                              fairshare=some(0, 50, 500))  # fmt: skip
    flags = frozenset(rng.choice(["ACCRUE_ALWAYS", "SMALL_RELATIVE_TO_TIME", "NO_NORMAL_QOS"], some(0, 1, 2)).tolist())
    backfill = BackfillSettings(
        bool(rng.random() < 0.9), some(1, 5, 30), some(5, 40, 1000), some(1, 4, 10), some(2, 10, 500), some(0, 0, 1),
        some(0, 0, 2), some(0, 0, 2), some(0, 0, 2), some(0, 0, 2), some(0, 0, 2), some(0, 0, 20), some(0, 0, 5),
    )  # fmt: skip
    how = PrioritySettings(bool(rng.random() < 0.9), weights, some(20, 200), 100.0, some(1, 7, 300), False, flags)
    partitions = Partition("p", priority_job_factor=3), Partition("q", is_default=True, priority_tier=some(1, 2))
    named = partitions if rng.random() < 0.8 else ()
    main = MainSettings(some(1, 3, 100), some(3, 60), some(0, 0, 1))
    few = RunningLimits(grp_jobs=some(3, 99))
    tree = (
        Association("lab", shares=some(0, 1, 3), limits=few), Association("lab", "x"),
        Association("lab", "y", shares=2),
        Association("team", parent="lab", shares=some(1, 2)), Association("team", "z", usage_s=some(0, 900)),
        Association("other"), Association("other", "x", shares=some(1, 4)),
    )  # fmt: skip
    low = RunningLimits()
    if rng.random() < 0.7:
        low = RunningLimits(
            some(14, 40), some(2, 5, 99), max_gpus_per_user=some(12, 20, 99), max_jobs_per_user=some(2, 99)
        )
    known = tree if rng.random() < 0.7 else ()
    return SchedulerSettings(how, main, backfill, named, (Qos("high", 10), Qos("low", 3, low)), known)


def _attempts(n: int, rng: np.random.Generator) -> Attempts:
    first = np.concatenate([[0], np.cumsum(rng.choice([0, 1, 2, 3], n))])
    return Attempts(first, rng.integers(0, rng.choice([4, 60]), first[-1]).astype(float), rng.random(first[-1]) < 0.4)


def _faults(work: Workload, rng: np.random.Generator) -> NodeFaults:
    """Faults of nodes for some attempts. A job's last one never repeats an earlier one, nor does its first."""
    n = len(work.work)
    bound = rng.random(n) < 0.4
    again = bound & (rng.random(n) < 0.3)
    again[work.first[:-1]] = False
    again[work.first[1:] - 1] = False
    return NodeFaults(bound, again, rng.random(n), rng.integers(0, 300, n).astype(float))
