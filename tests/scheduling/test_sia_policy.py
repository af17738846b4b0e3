"""Sia as a policy: how fast a job may grow, what a restart is weighed against, and who is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from perdure.errors import InputError
from perdure.scheduling import sia_policy
from perdure.scheduling.elastic import ElasticJob, ElasticView, GpuType, Share
from perdure.scheduling.sia_policy import Sia
from perdure.throughput.learned import LearnedJob, LearnedSpeed
from perdure.throughput.speed import Floats


def job(seen: int = 0, most: int = 64, **also: object) -> ElasticJob:
    """One that was seen on so many GPUs, 600 s after it came and after two restarts of 30 s."""
    steps = {(1, seen, 1): (1.0, 1.0)} if seen else {}
    learned = LearnedJob(1, 1, [(1, 1)], np.ones(1), [LearnedSpeed("net", {}, steps)])
    found = ElasticJob(0.0, 1, 30.0, most, 1, learned, 1.0, np.ones(1), restarts=2)
    for name, value in also.items():
        setattr(found, name, value)
    return found


def planned(monkeypatch: pytest.MonkeyPatch, jobs: Sequence[ElasticJob], power: float = 1.0) -> dict[int, int]:
    """GPUs of each job on a node of 8, where goodput grows as this power of the GPUs."""

    def expected(learned: Sequence[LearnedJob], gpus: Floats, *_: object) -> Floats:
        return np.tile(gpus.astype(float) ** power, (len(learned), 1))

    monkeypatch.setattr(sia_policy, "expected_goodput", expected)
    view = ElasticView((GpuType("t4", 1, 8),), dict(enumerate(jobs)), 600.0)
    return {row: share.gpus for row, share in Sia().plan(view).items()}


@pytest.mark.parametrize(("seen", "most", "gpus"), [(0, 64, 1), (1, 64, 2), (2, 64, 4), (4, 64, 8), (2, 3, 2)])
def test_a_job_at_most_doubles_the_gpus_that_it_was_seen_on(
    monkeypatch: pytest.MonkeyPatch, seen: int, most: int, gpus: int
) -> None:
    assert planned(monkeypatch, [job(seen, most)]) == {0: gpus}


@pytest.mark.parametrize(("restarts", "gpus"), [(2, 1), (0, 2)])
def test_a_small_gain_is_not_worth_a_restart_to_who_restarted_often(
    monkeypatch: pytest.MonkeyPatch, restarts: int, gpus: int
) -> None:
    # Two GPUs are worth 1.15 of one; a restart leaves (600 - 60) / 630 of that, .99, or 600 / 630, 1.10.
    runs = job(1, share=Share(0, 1, 1), restarts=restarts)
    assert planned(monkeypatch, [runs], power=0.2) == {0: gpus}


def test_who_restarts_keeps_its_gpus_and_nobody_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    restarts = job(4, share=Share(0, 1, 2), restarting=True)
    assert planned(monkeypatch, [restarts, job(4)]) == {0: 2, 1: 4}


def test_a_job_that_runs_on_more_than_it_may_have_is_planned_on_less(monkeypatch: pytest.MonkeyPatch) -> None:
    # So it is where its profile is forgotten, or was never made: nobody else could have a configuration that large.
    assert planned(monkeypatch, [job(0, share=Share(0, 1, 4))]) == {0: 1}


TYPES = (GpuType("big", 2, 4), GpuType("small", 1, 8))
CONFIGS = [(0, 1, 1), (0, 1, 2), (0, 1, 4), (0, 2, 8), (1, 1, 1), (1, 1, 2), (1, 1, 4), (1, 1, 8)]


def pipeline(stages: Sequence[int], seen: int = 0, **also: object) -> ElasticJob:
    """One whose replica takes so many GPUs of each type, and that was seen with so many replicas."""
    steps = {(1, seen, 1): (1.0, 1.0)} if seen else {}
    speed = [LearnedSpeed("gpt", {}, steps), LearnedSpeed("gpt", {})]
    learned = LearnedJob(1, 1, [(1, 1)] * 2, np.ones(2), speed, stages=stages, replica_batch=1)
    found = ElasticJob(0.0, 1, 30.0, 64, 1, learned, 1.0, np.ones(2))
    for name, value in also.items():
        setattr(found, name, value)
    return found


def allowed(job: ElasticJob, kind: int, gpus: int) -> bool:
    """By the rules: whole replicas, at most twice as many as were seen, and no further than was measured."""
    each = job.learned.stages[kind] if job.learned.stages else 1
    if not each or gpus % each or (job.reach and gpus > job.reach[kind]):
        return False
    return gpus // each <= max(1, 2 * job.learned.most_gpus())


@pytest.mark.parametrize("seed", range(12))
def test_pipelines_have_whole_replicas_and_the_best_plan_of_all(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [pipeline((2, 8), 1), pipeline((4, 0), 2), pipeline((1, 4), 2, reach=[2, 8]), pipeline((), 2)]
    goodput = rng.uniform(0.5, 8.0, (len(jobs), len(CONFIGS)))

    def expected(learned: Sequence[LearnedJob], gpus: Floats, gpu_type: Floats, *_: object) -> Floats:
        asked = [(kind, count) for kind, count in zip(gpu_type.tolist(), gpus.tolist(), strict=True)]
        return goodput[:, [next(at for at, (k, _, g) in enumerate(CONFIGS) if (k, g) == each) for each in asked]]

    monkeypatch.setattr(sia_policy, "expected_goodput", expected)
    view = ElasticView(TYPES, dict(enumerate(jobs)), 600.0)
    plan = Sia().plan(view)

    choices: list[list[tuple[float, int, int]]] = []
    for row, job in enumerate(jobs):
        may = [at for at, (kind, _, gpus) in enumerate(CONFIGS) if allowed(job, kind, gpus)]
        lowest, fewest = goodput[row, may].min(), min(CONFIGS[at][2] for at in may)
        term = {at: float(np.round((goodput[row, at] / lowest * fewest) ** -0.5, 2)) for at in may}
        choices.append([(1.1, 0, 0)] + [(term[at], CONFIGS[at][0], CONFIGS[at][2]) for at in may])
    sums = [
        sum(each[0] for each in combination)
        for combination in product(*choices)
        if all(sum(gpus for _, kind, gpus in combination if kind == at) <= TYPES[at].gpus for at in (0, 1))
    ]
    found = 0.0
    for row, job in enumerate(jobs):
        share = plan.get(row)
        assert share is None or allowed(job, share.gpu_type, share.gpus)
        found += next(
            term
            for term, kind, gpus in choices[row]
            if (kind, gpus) == ((share.gpu_type, share.gpus) if share else (0, 0))
        )
    assert found == pytest.approx(min(sums), abs=1e-3)


def test_a_new_pipeline_starts_with_one_replica() -> None:
    for stages, gpus in (((2, 0), 2), ((4, 0), 4), ((0, 8), 8)):
        plan = Sia().plan(ElasticView(TYPES, {0: pipeline(stages)}, 600.0))
        assert plan[0].gpus == gpus


def test_a_new_pipeline_counts_each_gpu_of_its_replica_as_one() -> None:
    assert Sia().plan(ElasticView(TYPES, {0: pipeline((2, 8))}, 600.0))[0] == Share(1, 1, 8)


def test_a_pipeline_that_no_configuration_holds_is_named() -> None:
    view = ElasticView(TYPES, {0: pipeline((2, 8)), 1: pipeline((3, 0), name="gpt-1")}, 600.0)
    with pytest.raises(
        InputError, match=r"job gpt-1: a replica takes 3 of big, 0 of small, and Sia knows powers of two"
    ):
        Sia().check(view)
    with pytest.raises(InputError, match="job gpt-2"):
        Sia().check(ElasticView(TYPES, {0: pipeline((16, 0), name="gpt-2")}, 600.0))
    Sia().check(ElasticView(TYPES, {0: pipeline((8, 0)), 1: pipeline((2, 8), rigid=True, asked_gpus=4)}, 600.0))


def test_a_rigid_gang_counts_as_all_of_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 8 GPUs it is worth 8, and the other job there 8 ** .8: who counted the gang as one would leave it out.
    gang = job(asked_gpus=8, rigid=True)
    assert planned(monkeypatch, [job(4, share=Share(0, 1, 8), restarts=0), gang], power=0.8)[1] == 8


def test_age_is_since_the_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    # 100 s old and restarted once, it has (100 - 30) / 130 of two GPUs' worth, 1.41, after another restart.
    young = job(1, share=Share(0, 1, 1), restarts=1, submit_s=500.0)
    assert planned(monkeypatch, [young], power=0.5) == {0: 1}
    assert planned(monkeypatch, [job(1, share=Share(0, 1, 1), restarts=1)], power=0.5) == {0: 2}
