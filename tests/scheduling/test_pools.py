"""Policies that know one GPU type, on a cluster of several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.model.cluster import Cluster
from perdure.model.profiles import AdaptiveJobs, AppJobs, RateProfile
from perdure.scheduling.elastic import ElasticView, Plan
from perdure.scheduling.elastic_policies import ELASTIC, POOLED, elastic_named
from perdure.scheduling.pools import TypePools
from perdure.scheduling.tiresias_policy import Tiresias
from perdure.simulation.elastic import ElasticResult, replay_elastic
from perdure.throughput.application import rated_applications


def replayed(
    spec: str, gpus: list[int], rates: dict[tuple[str, int], float], policy: TypePools, app: list[str] | None = None
) -> ElasticResult:
    """Jobs of 600 steps that come at once, at rates by GPU type and GPUs."""
    kinds, counts = zip(*rates, strict=True)
    profile = RateProfile(
        np.array(["net"] * len(rates)),
        np.array(kinds),
        np.array(counts),
        np.ones(len(rates), bool),
        np.array(list(rates.values())),
    )
    jobs, asked = np.arange(len(gpus)), np.array(gpus)
    apps = None if app is None else AppJobs(np.array(app), np.zeros(len(gpus)), np.array(["all"] * len(gpus)))
    told = AdaptiveJobs(
        jobs.astype(str),
        np.zeros(len(jobs)),
        np.array(["net"] * len(jobs)),
        asked,
        asked,
        steps=np.full(len(jobs), 600.0),
    )
    return replay_elastic(
        replace(told, apps=apps), Cluster.parse(spec), policy, rated_applications(profile, ["net"]), {}
    )


def tiresias() -> TypePools:
    return TypePools(Tiresias)


def test_a_job_goes_where_least_is_asked_for_and_of_equal_pools_to_the_fastest() -> None:
    result = replayed("1x2:slow + 1x2:fast", [1, 1, 1], {("slow", 1): 1.0, ("fast", 1): 2.0}, tiresias())
    # The first to the fast ones, the second beside nobody, the third to the fast ones again.
    assert (result.held_gpu_s > 0).tolist() == [[False, True], [True, False], [False, True]]
    assert result.jct_s.tolist() == [390.0, 690.0, 390.0]  # from the first round on, at 60 s, after 30 s of starting


def test_a_job_is_not_sent_where_it_does_not_run() -> None:
    result = replayed("1x8:slow + 1x2:fast", [2, 2], {("slow", 1): 1.0, ("fast", 2): 2.0}, tiresias())
    assert result.held_gpu_s[:, 0].tolist() == [0.0, 0.0]


def test_an_app_is_in_one_pool_with_all_of_its_jobs() -> None:
    rates = {("slow", 1): 1.0, ("fast", 1): 1.5}
    result = replayed("1x4:slow + 1x4:fast", [1] * 4, rates, TypePools(Tiresias), ["a", "a", "b", "b"])
    homes = (result.held_gpu_s > 0).argmax(axis=1).tolist()
    assert homes[0] == homes[1] != homes[2] == homes[3]


@pytest.mark.parametrize("name", sorted(POOLED - {"optimus", "pollux"}))
def test_on_one_type_it_is_the_policy_itself(name: str) -> None:
    policy = elastic_named(name)
    assert isinstance(policy, TypePools)
    rates = {("only", gpus): 1.0 * gpus for gpus in (1, 2, 4)}
    pooled = replayed("2x4:only", [4, 2, 4, 1, 2], rates, policy)
    alone = replayed("2x4:only", [4, 2, 4, 1, 2], rates, policy.make())  # type: ignore[arg-type]
    assert pooled.policy == name
    assert pooled.end_s.tolist() == alone.end_s.tolist()


def test_each_pool_has_a_policy_of_its_own() -> None:
    seen = list[tuple[int, tuple[str, ...], list[int]]]()

    class WatchedTiresias(Tiresias):
        def plan(self, view: ElasticView) -> Plan:
            seen.append((id(self), tuple(kind.name for kind in view.types), sorted(view.jobs)))
            return super().plan(view)

    replayed("1x1:a + 1x1:b", [1, 1, 1], {("a", 1): 1.0, ("b", 1): 1.0}, TypePools(WatchedTiresias))
    assert len({one for one, *_ in seen}) == 2
    assert {(kinds, *rows) for _, kinds, rows in seen[:2]} == {(("a",), 0, 2), (("b",), 1)}


def test_the_name_of_jobs_with_a_running_time_stays_theirs() -> None:
    # The page for comparisons knows by the name whether jobs are to have profiles.
    assert "las-2d" not in ELASTIC
    assert elastic_named("las-2d").name == "las-2d"
