"""The compiled loop and the plain one make the same schedules."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.policies import policy_named
from perdure.scheduling.protocol import Policy
from perdure.simulation.compiled.registry import COMPILED
from perdure.simulation.simulate import Engine, simulate
from perdure.simulation.workload import Workload
from tests.simulation.tables import jobs
from tests.simulation.worlds import PLACES, VARIANTS, WORLDS, world

run = pytest.importorskip("perdure.simulation.compiled.run", reason="numba is not installed")

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

IN_PYTHON = "NUMBA_DISABLE_JIT" in os.environ


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
