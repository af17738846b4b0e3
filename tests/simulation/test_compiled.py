"""The compiled loop and the plain one make the same schedules."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import Attempts, JobTable
from perdure.scheduling.maxmin import MaxMin
from perdure.scheduling.policies import PolicyOptions, policy_named
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
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.faults import NodeFaults
from perdure.simulation.restart_cost import FREE, RestartCost
from perdure.simulation.result import Result
from perdure.simulation.retry_hook import Again, FailedRun
from perdure.simulation.simulate import Engine, simulate
from perdure.simulation.workload import Workload
from tests.simulation.tables import jobs

run = pytest.importorskip("perdure.simulation.compiled.run", reason="numba is not installed")

PLACES = ["count", "first-fit", "best-fit", "consolidate", "ladder:15", "spread-ladder:15"]
POLICIES = [
    "fifo",
    "fjf",
    "sjf",
    "sjf:skip",
    "capacity",
    "capacity:1.5",
    "drf",
    "philly",
    "easy",
    "conservative",
    "conservative:replan",
]
POLICIES += [
    "srtf",
    "srsf",
    "fewest-gpus",
    "las",
    "las-2d",
    "las-2d:0.5",
    "las-2d:2",
    "gittins-2d",
    "slurm",
    "tetris",
    "maxmin",
]
VARIANTS: list[Policy] = [MaxMin(3.0), MaxMin(40.0), Tetris(packing=0.0), Tetris(packing=20.0)]

WORLDS = 48
IN_PYTHON = "NUMBA_DISABLE_JIT" in os.environ


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


@pytest.mark.parametrize("policy", [*POLICIES, *VARIANTS], ids=str)
def test_both_loops_agree(policy: str | Policy) -> None:
    for seed in range(0, WORLDS, 11 if IN_PYTHON else 1):
        plain, fast = (world(seed).replay(policy, engine) for engine in ("plain", "compiled"))
        for column in ("start_s", "end_s", "preempted", "promoted", "passed"):
            assert np.array_equal(getattr(fast, column), getattr(plain, column)), (seed, column)
        for column in ("job", "number", "submit_s", "start_s", "end_s", "ran_s", "passed", "node", "record"):
            assert np.array_equal(getattr(fast.attempts, column), getattr(plain.attempts, column)), (seed, column)
        assert (fast.digest(), fast.busy_gpu_s) == (plain.digest(), plain.busy_gpu_s), seed


def test_the_worlds_are_crowded() -> None:
    """So that policies have something to decide: jobs wait, are preempted, fail, and are kept off nodes."""
    found = [world(seed).replay("las-2d", "compiled") for seed in range(0, WORLDS, len(PLACES))]
    assert sum(each.preempted.sum() for each in found) > 100
    assert sum((~each.attempts.passed).sum() for each in found) > 100
    assert sum((each.attempts.start_s > each.attempts.submit_s).sum() for each in found) > 100


def test_every_compiled_policy_is_compared() -> None:
    assert {type(policy_named(name)) for name in POLICIES} == set(COMPILED)


@pytest.mark.parametrize("name", POLICIES)
def test_these_policies_are_compiled(name: str) -> None:
    table = Workload.of(jobs((1, 0, 1)))
    assert run.compiled(table, Cluster.parse("1x8"), policy_named(name), None) is not None


def test_the_sites_of_these_worlds_are_compiled() -> None:
    """Else the plain loop would be compared with itself."""
    for seed in range(WORLDS):
        each, policy = world(seed), policy_named("slurm", world(seed).options)
        assert run.compiled(Workload.of(each.table), each.cluster, policy, None) is not None


@pytest.mark.skipif(IN_PYTHON, reason="it runs in Python already")
def test_the_compiled_loop_runs_as_python_too() -> None:
    """So that a kernel can be stepped through; numba checks no bounds, Python does."""
    argv = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "agree")
    ran = subprocess.run(
        argv, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
    assert f"{len(POLICIES) + len(VARIANTS)} passed" in ran.stdout


@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_a_rung_that_is_shorter_than_a_tick_lasts_one(engine: Engine) -> None:
    short, tick = (replace(world(4), placement=f"ladder:{relax_s}") for relax_s in (0.01, 1))
    assert (short.table.submit_s == np.rint(short.table.submit_s)).all()  # so that a tick is a second
    assert np.array_equal(short.replay("fjf", engine).start_s, tick.replay("fjf", engine).start_s)


@pytest.mark.skipif(IN_PYTHON, reason="nothing is compiled")
@pytest.mark.parametrize("seed", range(6))
def test_long_queues_keep_their_promises_alike(seed: int) -> None:
    """What will be free has hundreds of stretches here, so that blocks of them are split, merged and dropped."""
    rng = np.random.default_rng(seed)
    n = 180
    duration = np.ceil(rng.exponential(100, n))
    limit = np.ceil(duration * rng.choice([0.8, 1.0, 1.5, 6.0], n, p=[0.02, 0.3, 0.38, 0.3]))
    table = JobTable(
        np.arange(n).astype(str), np.sort(rng.integers(0, 1 + 200 * seed, n)).astype(float),
        rng.integers(1, 25, n) if seed % 2 else rng.choice([1, 2, 8], n), duration,
        vc=np.full(n, "a"), user=np.full(n, "x"), walltime_s=limit,
    )  # fmt: skip
    compiled, plain = (simulate(table, Cluster.parse("4x8"), "conservative", engine=e) for e in ("compiled", "plain"))
    assert compiled.digest() == plain.digest()
