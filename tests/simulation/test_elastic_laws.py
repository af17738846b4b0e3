"""What holds of each policy that gives shares round by round, on random clusters, jobs and pairs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, RateProfile
from perdure.scheduling.elastic import ElasticPolicy, ElasticView, Plan
from perdure.scheduling.elastic_policies import ELASTIC, elastic_named
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.throughput.application import rated_applications
from perdure.throughput.colocation import Colocation
from perdure.throughput.traits import Traits

ONE_TYPE = ("tiresias", "pollux", "themis")
SLOW = ("sia", "pollux")  # to plan
ONE_GPU = ("allox",)
RATED = [name for name in ELASTIC if name != "optimus"]  # which asks for the steps of epochs
KINDS = ("lm", "resnet", "a3c")


@dataclass
class Watched:
    """A policy, and all that it planned, checked as it is planned."""

    policy: ElasticPolicy
    plans: list[Plan] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def round_s(self) -> float:
        return self.policy.round_s

    @property
    def adaptive(self) -> bool:
        return self.policy.adaptive

    def plan(self, view: ElasticView) -> Plan:
        plan = self.policy.plan(view)
        used = [0.0] * len(view.types)
        for row, share in plan.items():
            kind, job = view.types[share.gpu_type], view.jobs[row]
            used[share.gpu_type] += share.gpus / (1 if share.shared_with is None else 2)
            assert share.gpus == job.asked_gpus or not job.rigid, "a rigid job has all of its gang"
            assert np.isfinite(job.alone_s[share.gpu_type]), "it runs there"
            assert 1 <= share.nodes <= share.gpus <= share.nodes * kind.gpus_per_node
            for node, gpus in share.where:
                assert 0 <= node < kind.nodes
                assert 1 <= gpus <= kind.gpus_per_node
            if share.shared_with is not None:
                other = plan[share.shared_with]
                assert (other.spot, other.shared_with) == (share.spot, row), "a pair holds the same GPUs"
                names = job.application, view.jobs[share.shared_with].application
                assert view.pairs.fits(kind.name, share.gpus, share.nodes, *names)
        assert all(gpus <= kind.gpus for gpus, kind in zip(used, view.types, strict=True))
        self.plans.append(dict(plan))
        return plan


@dataclass
class World:
    cluster: Cluster
    jobs: AdaptiveJobs
    rates: RateProfile
    pairs: Colocation

    def replayed(self, policy: ElasticPolicy, restart_s: float = 30.0) -> ElasticResult:
        known = rated_applications(self.rates, KINDS)
        traits = dict.fromkeys(KINDS, Traits(restart_s, restart_s))
        return replay_elastic(self.jobs, self.cluster, policy, known, traits, pairs=self.pairs)


def world(policy: str, seed: int) -> World:
    rng = np.random.default_rng([seed, 20])
    types = ("fast",) if policy in ONE_TYPE else ("fast", "slow")
    nodes = rng.integers(1, 4, len(types)).tolist()
    sizes = (1,) if policy in ONE_GPU else (1, 2, 4)
    rows = [(name, kind, gpus) for name in KINDS for kind in types for gpus in (1, 2, 4)]
    rates = RateProfile(
        np.array([name for name, _, _ in rows]),
        np.array([kind for _, kind, _ in rows]),
        np.array([gpus for *_, gpus in rows]),
        np.ones(len(rows), bool),
        np.array([rng.uniform(1, 4) * gpus for *_, gpus in rows]),
    )
    kept = {
        (kind, gpus, True, name, other): 0.0 if rng.random() < 0.1 else float(rng.uniform(0.3, 0.95))
        for _, kind, gpus in rows[: len(types) * 3]
        for name in KINDS
        for other in KINDS
    }
    n = int(rng.integers(3, 9 if policy in SLOW else 14))
    gpus = rng.choice(sizes, n)
    steps = rng.uniform(200, 3000, n) * gpus
    names = np.array([str(row) for row in range(n)])
    submit_s = np.sort(rng.uniform(0, 3000, n))
    fails = tuple((0.4,) if rng.random() < 0.3 else () for _ in range(n))  # these come back at once
    jobs = AdaptiveJobs(names, submit_s, rng.choice(KINDS, n), gpus, gpus, fails, steps)
    cluster = Cluster.parse("+".join(f"{count}x4:{kind}" for count, kind in zip(nodes, types, strict=True)))
    return World(cluster, jobs, rates, Colocation(kept))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", ["allox", "gavel-las", "gavel-makespan"])
def test_rounds_that_are_passed_over_change_nothing(policy: str, seed: int) -> None:
    given = world("allox", seed)  # jobs of one GPU, some of which fail and come back
    found, each = (
        given.replayed(elastic_named(policy)),
        Watched(elastic_named(policy)),
    )  # which never tells that it settled
    asked = given.replayed(each)
    for name in ("start_s", "end_s", "gpu_s", "held_gpu_s", "restart_gpu_s"):
        assert getattr(found, name) == pytest.approx(getattr(asked, name), rel=1e-12), name
    assert (found.restarts.tolist(), found.attempts.tolist()) == (asked.restarts.tolist(), asked.attempts.tolist())
    assert (found.rounds, found.use) == (asked.rounds, asked.use)


def test_allox_is_not_asked_while_all_jobs_keep_their_gpus() -> None:
    given, policy, count = world("allox", 0), elastic_named("allox"), 0
    assert given.jobs.steps is not None
    given.jobs = replace(given.jobs, steps=given.jobs.steps * 50)

    class Counted:
        def __getattr__(self, name: str) -> Any:
            return getattr(policy, name)

        def plan(self, view: ElasticView) -> Plan:
            nonlocal count
            count += 1
            return policy.plan(view)

    found = given.replayed(cast("ElasticPolicy", Counted()))
    assert count < found.rounds / 5


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", RATED)
def test_plans_fit_keep_gangs_and_are_the_same_twice_and_all_jobs_end(policy: str, seed: int) -> None:
    given, first, second = world(policy, seed), Watched(elastic_named(policy)), Watched(elastic_named(policy))
    found, again = given.replayed(first), given.replayed(second)
    assert first.plans == second.plans
    assert found.end_s.tolist() == again.end_s.tolist()
    assert np.isfinite(found.end_s).all()
    assert found.passed.all()
    assert found.attempts.tolist() == [1 + len(each) for each in given.jobs.fails]
    assert (found.start_s >= found.submit_s).all()
    assert found.gpu_s.sum() <= given.cluster.total_gpus * found.end_s.max()
    # A first start costs as much as a restart, and no type is faster than the best.
    assert (found.end_s - found.start_s >= found.alone_s + 30.0 - 1e-6).all()
