"""Jobs that are pipelines, replayed: by the formula on a fixed share, and under policies among other jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, EpochProfile, StepProfile
from perdure.scheduling.elastic import ElasticPolicy, ElasticView, Plan, Share
from perdure.scheduling.elastic_policies import ELASTIC
from perdure.scheduling.sia_policy import Sia
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.simulation.elastic_metrics import ElasticMetrics
from perdure.throughput.application import Application, applications
from perdure.throughput.pipeline import Pipeline
from perdure.throughput.traits import PUBLISHED, Traits
from perdure.traces.profiles import read_adaptive, read_profiles
from tests.conftest import require

STAGES = {"big": 2, "small": 8}
KINDS = ("big", "small", "old")
CLUSTER = Cluster.parse("1x8:big + 2x8:small + 1x4:old")
PIPELINES_KNOW = {name for name in ELASTIC if name == "sia" or name.startswith("gavel-")}


def known() -> Mapping[str, Application]:
    """A pipeline of 10 micro-batches in two GPU types, and a net on three."""
    rows = [
        ("gpt", kind, layout, 1, each_s, 0.1 * len(layout))
        for kind, each_s in (("big", 0.1), ("small", 0.05))
        for layout in ((2,), (4,), (8,), (8, 8))
    ] + [
        ("net", kind, layout, batch, batch * 0.01 + 0.01, 0.005)
        for kind in KINDS
        for layout in ((1,), (2,), (4,), (8,), (8, 8))
        for batch in (1, 8, 16, 32)
    ]
    name, kind, layout, batch, step_s, sync_s = (list(column) for column in zip(*rows, strict=True))
    steps = StepProfile(
        np.array(name),
        np.array(kind),
        np.array([",".join(map(str, each)) for each in layout]),
        np.array([len(each) for each in layout]),
        np.array([sum(each) for each in layout]),
        np.array(batch, float),
        np.array(step_s),
        np.array(sync_s),
    )
    progress = np.tile(np.arange(1, 6) * 300.0, 2)
    batches = [np.repeat([10, 80], 5), np.repeat([16, 64], 5)]
    epochs = EpochProfile(
        np.repeat(["gpt", "net"], 10),
        np.concatenate(batches),
        np.tile(progress, 2),
        np.full(20, 1e-6),
        np.ones(20),
    )
    return applications(steps, epochs, ["gpt", "net"], {"gpt": Pipeline(STAGES, 10)})


def jobs(*names: str, gpus: int = 8, each_s: float = 100.0) -> AdaptiveJobs:
    n = len(names)
    ids = np.array([f"{name}-{row}" for row, name in enumerate(names)])
    return AdaptiveJobs(ids, np.arange(n, dtype=float) * each_s, np.array(names), np.full(n, gpus), np.full(n, 16))


def replayed(policy: Any, given: AdaptiveJobs, cluster: Cluster = CLUSTER, **changes: Any) -> ElasticResult:
    traits = {"gpt": Traits(30.0, 30.0), "net": Traits(30.0, 30.0)}
    return replay_elastic(given, cluster, policy, known(), traits, **changes)


@dataclass
class Watched:
    """A policy, and the shares that each job ever had, in order."""

    policy: ElasticPolicy
    shares: dict[int, list[Share]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def plan(self, view: ElasticView) -> Plan:
        plan = self.policy.plan(view)
        for row, share in plan.items():
            self.shares.setdefault(row, []).append(share)
        return plan


@dataclass(frozen=True)
class Fixed:
    """Gives all jobs this share."""

    share: Share
    name: str = "fixed"
    round_s: float = 60.0
    adaptive: bool = True
    pipelines: bool = True

    def plan(self, view: ElasticView) -> Plan:
        return dict.fromkeys(view.jobs, self.share)


@pytest.mark.parametrize(("share", "replicas", "step_s"), [
    (Share(0, 1, 2), 1, 3 * 11 * 0.1 + 0.1),
    (Share(0, 1, 8), 4, 3 * 11 * 0.1 + 0.1),
    (Share(1, 2, 16), 2, 3 * 17 * 0.05 + 0.2),
])  # fmt: skip
def test_a_pipeline_works_by_its_formula(share: Share, replicas: int, step_s: float) -> None:
    found = replayed(Fixed(share), jobs("gpt"))
    # The noise is so large that a batch is worth its size, and so as many steps of one replica.
    assert found.end_s[0] - found.start_s[0] == pytest.approx(30 + 1500 / replicas * step_s, rel=1e-4)


def test_how_fast_a_type_is_counts_by_gpu_and_not_by_replica() -> None:
    # A replica of 8 small GPUs makes a step in 2.65 s, and one of 2 big ones in 3.4 s: by GPU the big ones are faster.
    firsts = list[int]()

    @dataclass(frozen=True)
    class Looks(Fixed):
        def plan(self, view: ElasticView) -> Plan:
            firsts.append(view.fastest_first[0])
            return super().plan(view)

    given = {"gpt": known()["gpt"]}
    replay_elastic(jobs("gpt"), Cluster.parse("1x8:small + 1x8:big"), Looks(Share(1, 1, 8)), given, {})
    assert set(firsts) == {1}


def test_its_time_alone_is_that_of_the_replicas_asked_for() -> None:
    found = replayed(Sia(), jobs("gpt", "gpt", "gpt"))
    assert found.alone_on_s[0] == pytest.approx([1500 / 4 * 3.4, 1500 * (3 * 17 * 0.05 + 0.1), np.inf], rel=1e-4)


@pytest.mark.parametrize("name", sorted(PIPELINES_KNOW))
def test_replicas_stay_whole_among_other_jobs(name: str) -> None:
    policy = Watched(ELASTIC[name]())
    given = jobs("gpt", "net", "gpt", "net", "gpt", "net", "gpt")
    given = replace(given, gpus=np.where(given.application == "gpt", 8, 2))
    found = replayed(policy, given)
    assert np.isfinite(found.end_s).all()
    for row in np.flatnonzero(given.application == "gpt").tolist():
        for share in policy.shares[row]:
            kind = KINDS[share.gpu_type]
            assert share.gpus % STAGES[kind] == 0  # a KeyError: it was given GPUs that it has no pipeline for
            assert share.gpus in (1, 2, 4, 8, 16)
        if name != "sia":
            assert {share.gpus for share in policy.shares[row]} == {8}


def test_sia_starts_with_a_replica_and_at_most_doubles_replicas() -> None:
    policy = Watched(Sia())
    found = replayed(policy, jobs("gpt"), Cluster.parse("1x8:big"))
    replicas = [share.gpus // 2 for share in policy.shares[0]]
    assert replicas[0] == 1
    assert max(replicas) == 4
    most = np.maximum.accumulate(replicas)
    assert (np.array(replicas[1:]) <= 2 * most[:-1]).all()
    assert np.isfinite(found.end_s).all()


def test_batches_that_were_not_measured_end_its_growth() -> None:
    wide = Cluster.parse("2x8:big")  # 8 replicas of 10 examples are all of 80
    policy = Watched(Sia())
    replayed(policy, jobs("gpt"), wide)
    assert max(share.gpus for share in policy.shares[0]) == 16
    short = {**known(), "gpt": replace(known()["gpt"], batches=np.array([10, 40]))}
    policy = Watched(Sia())
    replay_elastic(jobs("gpt"), wide, policy, short, {})
    assert max(share.gpus for share in policy.shares[0]) == 8


@pytest.mark.parametrize("name", sorted(set(ELASTIC) - PIPELINES_KNOW))
def test_policies_that_would_split_replicas_refuse_pipelines(name: str) -> None:
    with pytest.raises(InputError, match="job gpt-0: "):
        replayed(ELASTIC[name](), jobs("gpt"), Cluster.parse("1x8:big"))


def test_a_pipeline_that_fits_nowhere_is_named() -> None:
    with pytest.raises(InputError, match=r"job gpt-0: a replica takes 8 of small"):
        replayed(Sia(), jobs("gpt"), Cluster.parse("1x4:small"))
    with pytest.raises(InputError, match=r"job gpt-0: a replica takes 0 of old"):
        replayed(Sia(), jobs("gpt"), Cluster.parse("1x4:old"))


def test_a_failed_pipeline_comes_back() -> None:
    found = replayed(Sia(), replace(jobs("gpt"), fails=((0.5,),)))
    assert (found.attempts.tolist(), found.passed.tolist()) == ([2], [True])


@pytest.mark.timeout(300)
def test_sias_pipeline_scales_beside_its_workload(data_dir: Path | None) -> None:
    where = require("data", data_dir, "no profiles here")
    given = read_adaptive(where / "traces" / "sia_workloads" / "saturn.csv.gz", 1)
    every = np.arange(len(given)) % 16 == 0  # ten jobs of 160 are large models instead
    kept = np.flatnonzero(every | (np.arange(len(given)) % 4 == 1))
    columns = {name: getattr(given, name)[kept] for name in ("job_id", "submit_s", "gpus", "batch")}
    application = np.where(every, "gpt_pmp", given.application)[kept]
    mixed = replace(given, **columns, application=application, rigid=None, own_batch=None)
    known = applications(*read_profiles(where / "gpu-profiles" / "sia"), application.tolist())
    policy = Watched(Sia())
    cluster = Cluster.parse("6x4:aws + 2x8:dgx-ext + 3x8:rtx")
    found = replay_elastic(mixed, cluster, policy, known, PUBLISHED)
    large = np.flatnonzero(application == "gpt_pmp").tolist()
    given_to = {(share.gpu_type, share.gpus) for row in large for share in policy.shares[row]}
    assert given_to <= {(1, 2), (1, 4), (1, 8), (1, 16), (2, 8), (2, 16), (2, 24)}
    assert len({gpus for _, gpus in given_to}) > 1
    assert np.isfinite(found.end_s).all()
    assert ElasticMetrics.of(found).jobs == len(kept)
