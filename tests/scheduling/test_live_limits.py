"""A policy in the simulation within the limits that it has in force: whom it puts back, when, and how often."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from perdure.live_policy.settings import PolicySettings
from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.scheduling.las import LeastAttained
from perdure.scheduling.live_limits import LiveLimits, UnderLimits
from perdure.scheduling.policies import PolicyOptions, policy_named
from perdure.simulation.restart_cost import restart_cost
from perdure.simulation.result import Result
from perdure.simulation.simulate import simulate

POLICY = LeastAttained(queue_limits=(60.0, 400.0))
FREE = LiveLimits(1.0, 0.0, 1000, 1000, 0.0)


def replayed(limits: LiveLimits, seed: int = 1) -> Result:
    rng = np.random.default_rng(seed)
    run_s = np.where(rng.random(80) < 0.75, rng.integers(5, 25, 80), rng.integers(60, 240, 80)).astype(float)
    submit_s, gpus = np.sort(rng.integers(0, 200, 80)).astype(float), rng.choice([1, 2, 4], 80)
    table = JobTable(np.arange(80).astype(np.str_), submit_s, gpus, run_s)
    cost = restart_cost("2")
    return simulate(table, Cluster(np.full(4, 4)), UnderLimits(POLICY, limits), "first-fit", spans=True, cost=cost)


def cut_short(result: Result) -> dict[int, list[tuple[float, float]]]:
    """The spans of each job that a preemption ended."""
    assert result.spans is not None
    found = defaultdict(list)
    for job, start_s, end_s in zip(result.spans.job, result.spans.start_s, result.spans.end_s, strict=True):
        if end_s < result.end_s[job]:
            found[int(job)].append((float(start_s), float(end_s)))
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_within_all_limits(seed: int) -> None:
    limits = LiveLimits(every_s=3.0, least_run_s=10.0, per_job=2, per_hour=15, away_s=7.0)
    assert int(replayed(FREE, seed).preempted.sum()) > 30, "a load that makes a policy preempt"
    result = replayed(limits, seed)
    cut = cut_short(result)
    assert 0 < int(result.preempted.sum()) == sum(map(len, cut.values())) <= limits.per_hour
    assert int(result.preempted.max()) <= limits.per_job
    assert all(end_s - start_s >= limits.least_run_s for spans in cut.values() for start_s, end_s in spans)
    starts: dict[int, list[float]] = defaultdict(list)
    assert result.spans is not None
    for job, start_s in zip(result.spans.job, result.spans.start_s, strict=True):
        starts[int(job)].append(float(start_s))
    for job, spans in cut.items():
        for _, end_s in spans:
            assert min(each for each in starts[job] if each >= end_s) >= end_s + limits.away_s


def test_it_decides_no_sooner_than_it_looks() -> None:
    times = sorted(
        {end_s for spans in cut_short(replayed(LiveLimits(30.0, 0.0, 9, 99, 0.0))).values() for _, end_s in spans}
    )
    assert len(times) > 3
    assert min(np.diff(times)) >= 30.0


def test_a_look_at_any_time_is_the_policy_itself() -> None:
    """Counted without places: there a decision each second with no limits differs by these seconds alone."""
    limited, free = replayed(FREE), replayed(LiveLimits(60.0, 1e9, 0, 0, 0.0))
    assert Counter(free.preempted.tolist()) == {0: 80}
    assert float(limited.end_s.mean()) < float(free.end_s.mean())


def test_only_policies_that_preempt_have_limits() -> None:
    options = PolicyOptions(limits=FREE)
    assert isinstance(policy_named("las-2d", options), UnderLimits)
    assert policy_named("las-2d", options).name == "las-2d"
    assert not any(isinstance(policy_named(name, options), UnderLimits) for name in ("slurm", "fifo", "maxmin"))


def test_a_promise_is_made_within_the_sites_own_limits() -> None:
    settings = PolicySettings("las-2d", every_s=10.0, least_run_s=60.0, preemptions_per_job=5, preemptions_per_hour=7)
    assert settings.limits(30.0) == LiveLimits(30.0, 60.0, 5, 7)
