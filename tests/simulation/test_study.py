"""The two published studies, small: their shapes, their bounds, and the split of delays by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.scheduling.policies import PolicyOptions
from perdure.simulation import study
from perdure.simulation.delays import delays, quotas_by_demand
from perdure.simulation.simulate import simulate
from tests.simulation.tables import jobs, tables

ONE = Cluster.parse("1x8")


@pytest.fixture(scope="module")
def small() -> study.RetryStudy:
    return study.retry(n_jobs=600, loads=(0.9,), seeds=2, nodes=8, policies=("sjf", "las-2d"))


def of(found: study.RetryStudy, retry: str) -> list[study.RetryFigures]:
    return [figures for figures in found.figures if figures.retry == retry]


def test_every_load_policy_and_way_of_retrying_has_its_figures():
    found = study.retry(n_jobs=40, loads=(0.5, 1.3), seeds=1, nodes=8, policies=("sjf", "srtf"))
    cases = {(figures.load, figures.policy, figures.retry) for figures in found.figures}
    assert len(cases) == len(found.figures) == 2 * 2 * 4


def test_full_retry_and_the_oracle_are_measured_against_themselves(small):
    assert all(figures.jct_saved.mean == figures.success_lost.mean == 0 for figures in of(small, study.FULL))
    assert all(figures.jct_over_oracle.mean == 0 for figures in of(small, study.ORACLE))


def test_an_oracle_loses_no_job_and_wastes_least_among_those_that_retry(small):
    for full, predicted, oracle in zip(*(of(small, retry) for retry in study.RETRIES[:3]), strict=True):
        assert oracle.success_lost.mean == 0 <= predicted.success_lost.mean
        assert oracle.wasted_gpu_h.mean < full.wasted_gpu_h.mean
        assert predicted.jct_saved.mean > 0


def test_a_perfect_classifier_is_the_oracle():
    found = study.retry(n_jobs=500, seeds=1, nodes=8, classifier=(1.0, 0.0), policies=("sjf",))
    assert of(found, study.PREDICTED)[0].jct_s == of(found, study.ORACLE)[0].jct_s
    assert of(found, study.PREDICTED)[0].jct_over_oracle.mean == 0


def test_published_figures_stand_apart_and_all_is_json(small):
    told = json.loads(json.dumps(small.to_json()))
    assert told["published"]["source"].startswith("published")
    assert told["figures"][0]["jct_s"].keys() == {"mean", "low", "high"}
    assert sum(told["gpu_time"].values()) == pytest.approx(1.0)


def test_progress_is_told_up_to_the_last_run():
    seen: list[tuple[int, int]] = []
    study.retry(n_jobs=50, seeds=1, nodes=8, policies=("sjf",), progress=lambda *at: seen.append(at))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_study_of_delays_names_all_sizes():
    found = study.delay(n_jobs=900, load=1.2, seeds=2, cluster="20x2+15x8", rack_nodes=12)
    assert [figures.gpus for figures in found.figures] == ["1", "2-4", "5-8", ">8"]
    assert sum(figures.jobs for figures in found.figures) == 1800
    assert json.loads(json.dumps(found.to_json()))["published"]["fragmentation_share"][">8"] == 0.979
    for figures in found.figures:
        shares = figures.fair_share.mean + figures.borrowed.mean + figures.fragmentation.mean
        assert shares == pytest.approx(1.0) or figures.wait_s.mean == 0


def split(table, cluster, quotas, placement="count"):
    options = PolicyOptions(quotas=quotas)
    found = simulate(table, cluster, "philly", placement, options=options, spans=True)
    parts = delays(table, found, quotas)
    return [np.round(part, 6).tolist() for part in (parts.fair_share_s, parts.borrowed_s, parts.fragmentation_s)]


def test_a_used_quota_is_a_fair_share_delay():
    table = jobs((4, 0, 100), (4, 0, 50), (4, 10, 10), vc=["a", "b", "a"])
    assert split(table, ONE, {"a": 4.0, "b": 4.0}) == [[0, 0, 40], [0, 0, 0], [0, 0, 0]]


def test_a_quota_that_others_borrowed_is_told_apart():
    table = jobs((8, 0, 100), (4, 10, 10), vc=["a", "b"])
    crowded = simulate(table, ONE, "fifo")
    parts = delays(table, crowded, {"a": 4.0, "b": 4.0})
    assert [parts.fair_share_s[1], parts.borrowed_s[1], parts.fragmentation_s[1]] == [0, 90, 0]


def test_free_gpus_on_two_nodes_are_a_fragmentation_delay():
    table = jobs((3, 0, 100), (3, 0, 100), (2, 10, 5), vc=["a", "a", "a"])
    assert split(table, Cluster.parse("2x4"), {"a": 8.0}, "consolidate") == [[0, 0, 0], [0, 0, 0], [0, 0, 90]]


def test_where_idle_gpus_are_lent_a_quota_keeps_nobody_from_them():
    table = jobs((3, 0, 100), (3, 0, 100), (2, 10, 5), vc=["a", "a", "a"])
    found = simulate(table, Cluster.parse("2x4"), "fifo", "consolidate")
    assert delays(table, found, {"a": 6.0}).fair_share_s[2] == 90
    assert delays(table, found, {"a": 6.0}, lends=True).fragmentation_s[2] == 90


@settings(deadline=None, max_examples=40)
@given(tables(), st.sampled_from(["fifo", "philly", "srtf", "drf"]), st.sampled_from(["count", "best-fit", "ladder"]))
def test_causes_of_a_wait_sum_to_it(table, policy, placement):
    cluster = Cluster.parse("2x8", rack_nodes=1)
    found = simulate(table, cluster, policy, placement, spans=True)
    parts = delays(table, found, quotas_by_demand(table, 16))
    whole = parts.fair_share_s + parts.borrowed_s + parts.fragmentation_s
    assert np.allclose(whole, found.start_s - table.submit_s)
    assert min(part.min() for part in (parts.fair_share_s, parts.borrowed_s, parts.fragmentation_s)) >= 0


@given(tables())
@settings(deadline=None)
def test_quotas_by_demand_share_the_cluster_out(table):
    assert sum(quotas_by_demand(table, 24).values()) == pytest.approx(24)


def test_what_cannot_be_split_is_refused():
    table = jobs((8, 0, 100), (8, 10, 5), vc=["a", "b"])
    with pytest.raises(ValueError, match="quota for virtual cluster 'b'"):
        delays(table, simulate(table, ONE, "fifo"), {"a": 8.0})
    with pytest.raises(ValueError, match="spans"):
        delays(table, simulate(table, ONE, "srtf"), {"a": 4.0, "b": 4.0})
