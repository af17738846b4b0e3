"""Replays of jobs that name an application: plans, times and figures under every policy that gives shares in rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, AppJobs
from perdure.scheduling.elastic import ElasticPolicy, ElasticView, Plan
from perdure.scheduling.elastic_policies import ELASTIC, LAS_2D, elastic_named
from perdure.scheduling.pools import TypePools
from perdure.scheduling.themis_policy import Themis
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.simulation.elastic_metrics import ElasticMetrics, rho
from perdure.simulation.elastic_report import elastic_page
from perdure.simulation.fairness import envy
from perdure.simulation.retry_hook import Again, FailedRun
from perdure.throughput.application import applications, rated_applications
from perdure.throughput.traits import Traits
from tests.recorded.whole_runs import Case
from tests.simulation.test_elastic import epochs, steps
from tests.simulation.test_elastic_laws import KINDS, world
from tests.simulation.test_pipelines import known as with_pipelines

NO_PICTURES = {"allocation": b"", "rho": b""}
SLOW = ("pollux", "sia", "themis")


def cases() -> Iterator[Case]:
    for name in (*ELASTIC, LAS_2D):
        for seed in range(1 if name in SLOW else 2):
            if name != "pollux":  # which takes seconds
                yield f"{name} rates {seed}", partial(_of_rates, name, seed)
            yield f"{name} profiles {seed}", partial(_of_profiles, name, seed)
        if name != "pollux":
            yield f"{name} apps", partial(_of_apps, name)
        yield f"{name} pipelines", partial(_of_pipelines, name)
    for name in ("gandiva", "gavel-las-packed", "gavel-gandiva", "mesos", "themis", "gavel-cost"):
        for seed in range(6):
            yield f"{name} crowd {seed}", partial(_of_crowd, name, seed)


@dataclass
class PlansKept:
    """A policy, and what it planned."""

    policy: ElasticPolicy
    plans: list[Plan] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def plan(self, view: ElasticView) -> Plan:
        plan = self.policy.plan(view)
        self.plans.append(dict(plan))
        return plan


def _told(result: ElasticResult, plans: list[Plan] | None = None) -> object:
    figures = ElasticMetrics.of(result)
    page = elastic_page([result], NO_PICTURES, NO_PICTURES, ["a note"])
    return figures.to_json(), figures.cut_short(), rho(result), envy(result), page, result, plans


def _of_rates(name: str, seed: int) -> object:
    """Jobs of fixed gangs, some of which fail and come back at once; GPUs of two types that two jobs may share."""
    given, policy = world(name, seed), PlansKept(elastic_named(name))
    return _told(given.replayed(policy), policy.plans)


def _of_crowd(name: str, seed: int) -> object:
    """Many jobs on few GPUs, whose restarts take longer than a round: they take turns, and pair in many ways."""
    given, rng = world("mesos", 50 + seed), np.random.default_rng([seed, 31])
    n = 9
    gpus = rng.choice([1, 1, 2], n)
    names = np.array([str(row) for row in range(n)])
    given.jobs = AdaptiveJobs(
        names,
        rng.integers(0, 300, n).cumsum() / 3.0,
        rng.choice(KINDS, n),
        gpus,
        gpus,
        tuple((0.4,) if rng.random() < 0.2 else () for _ in range(n)),
        rng.uniform(900, 4000, n),
    )
    given.cluster = Cluster.parse(("1x4:fast", "1x2:fast + 1x2:slow", "2x2:fast")[seed % 3])
    if name == "gavel-cost":  # of two types one has a price of its own
        given.cluster = Cluster.parse("1x2:v100 + 1x2:slow")
        kind = np.where(given.rates.gpu_type == "fast", "v100", given.rates.gpu_type)
        given.rates = replace(given.rates, gpu_type=kind)
    policy = PlansKept(TypePools(partial(Themis, lease_s=120.0)) if name == "themis" else elastic_named(name))
    return _told(given.replayed(policy, restart_s=5.0 if name == "themis" or seed % 2 else 150.0), policy.plans)


def _of_profiles(name: str, seed: int) -> object:
    """Jobs that may grow and choose their batch, of which some are rigid, keep their batch, or fail."""
    rng = np.random.default_rng([seed, 7])
    n = 6
    gpus = rng.choice([1, 2, 4], n)
    jobs = AdaptiveJobs(
        np.array([f"net-{row}" for row in range(n)]),
        np.sort(rng.integers(0, 900, n)).astype(float),
        np.full(n, "net"),
        gpus,
        rng.choice([16, 32, 64], n),
        tuple((0.5,) if rng.random() < 0.4 else () for _ in range(n)),
        rigid=rng.random(n) < 0.3,
        work=rng.uniform(0.05, 0.3, n),
        own_batch=rng.random(n) < 0.3,
    )
    cluster = Cluster.parse("2x4:slow" if seed % 2 else "2x4:slow + 1x4:fast")
    known, traits = applications(steps(), epochs(), ["net"]), {"net": Traits(20.0, 35.0)}
    result = replay_elastic(
        jobs, cluster, elastic_named(name), known, traits, _retried if seed != 1 else None, whole_seconds=seed == 1
    )
    return _told(result)


def _retried(failed: FailedRun) -> Again | None:
    return Again(45.0) if failed.number < 2 else None


def _of_apps(name: str) -> object:
    """Searches for models, each in its own way, beside jobs without one."""
    given, rng = world("allox", 3), np.random.default_rng(8)
    n = len(given.jobs)
    app = rng.choice(["", "a", "b"], n)
    search = np.where(app == "a", "halving", "first")
    jobs = replace(given.jobs, apps=AppJobs(app, rng.integers(0, 4, n) / 4.0, search), fails=())
    known, traits = rated_applications(given.rates, KINDS), dict.fromkeys(KINDS, Traits(10.0, 10.0))
    return _told(replay_elastic(jobs, given.cluster, elastic_named(name), known, traits))


def _of_pipelines(name: str) -> object:
    names = ["gpt", "net", "gpt", "net", "net"]
    ids = np.array([f"{each}-{row}" for row, each in enumerate(names)])
    gpus = np.array([8 if each == "gpt" else 2 for each in names])
    jobs = AdaptiveJobs(ids, np.arange(5, dtype=np.float64) * 100, np.array(names), gpus, np.full(5, 16))
    traits = {"gpt": Traits(30.0, 30.0), "net": Traits(30.0, 30.0)}
    cluster = Cluster.parse("1x8:big + 2x8:small + 1x4:old")
    return _told(replay_elastic(jobs, cluster, elastic_named(name), with_pipelines(), traits))
