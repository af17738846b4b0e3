"""The study of delays, small, and the use of a cluster that it is set by."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.occupancy import occupancy
from perdure.simulation.simulate import simulate
from perdure.studies import delay as study
from tests.simulation.tables import jobs, tables


def small(**changes: Any) -> study.DelayStudy:
    return study.delay(**{"n_jobs": 1500, "load": 1.0, "seeds": 1, "cluster": "40x2+30x8", **changes})


@pytest.fixture(scope="module")
def found() -> study.DelayStudy:
    return small(seeds=2)


def test_all_sizes_are_named_and_all_is_json(found: study.DelayStudy) -> None:
    assert [figures.gpus for figures in found.figures] == ["1", "2-4", "5-8", ">8"]
    assert sum(figures.jobs.mean for figures in found.figures) == 1500
    told = json.loads(json.dumps(found.to_json()))
    assert told["published"]["fragmentation_tries"][">8"] == 0.979
    assert 0 < told["gpus_in_use"]["mean"] < told["nodes_in_use"]["mean"] < 1


def test_the_mean_wait_is_that_of_the_sizes(found: study.DelayStudy) -> None:
    whole = sum(figures.jobs.mean * figures.wait_s.mean for figures in small().figures)
    assert whole / 1500 == pytest.approx(small().wait_s.mean)


def test_two_processes_find_what_one_does(found: study.DelayStudy) -> None:
    assert small(seeds=2, workers=2) == found


def test_without_quotas_all_delay_is_fragmentation() -> None:
    for figures in small(slack=1000.0).figures:
        waited = float(figures.wait_s.mean > 0)
        assert figures.fragmentation_seconds.mean == figures.fragmentation_tries.mean == waited
    assert small().figures[2].fragmentation_seconds.mean < 1


def test_nothing_is_scattered_by_a_placement_that_refuses_no_gang_for_which_gpus_are_free() -> None:
    assert small().figures[2].scattered.mean > 0
    assert [figures.scattered.mean for figures in small(placement="best-fit").figures] == [0, 0, 0, 0]


def test_packing_leaves_more_whole_nodes_than_spreading() -> None:
    spread, packed = (small(n_jobs=3000, load=0.8, seeds=2, placement=name) for name in ("spread-ladder", "ladder"))
    assert packed.free_nodes_at_two_thirds.mean > 1.2 * spread.free_nodes_at_two_thirds.mean
    assert packed.nodes_in_use.mean < spread.nodes_in_use.mean


def test_the_use_of_a_cluster_by_hand() -> None:
    """Two GPUs of the first node for 10 s; beside them from 4 s to 6 s the second node whole."""
    table = jobs((2, 0, 10), (4, 4, 2), (1, 20, 5))
    cluster = Cluster.parse("2x4")
    spans = simulate(table, cluster, "fifo", "first-fit", spans=True).spans
    assert spans is not None
    use = occupancy(spans, cluster, 20.0)
    assert use.mean_gpus() == pytest.approx((2 * 10 + 4 * 2) / (8 * 20))
    assert use.mean_nodes() == pytest.approx((10 + 2) / (2 * 20))
    assert use.free_nodes_while(0.2, 0.3) == pytest.approx(0.5)
    assert use.free_nodes_while(0.7, 0.8) == pytest.approx(0.0)
    assert np.isnan(use.free_nodes_while(0.9, 1.0))


@settings(deadline=None, max_examples=60)
@given(tables(), st.sampled_from(["fifo", "srtf", "philly"]), st.sampled_from(["first-fit", "spread-ladder"]))
def test_the_use_of_a_cluster_adds_up(table: JobTable, policy: Any, placement: Any) -> None:
    cluster = Cluster.parse("2x4+1x8", rack_nodes=1)
    result = simulate(table, cluster, policy, placement, spans=True)
    assert result.spans is not None
    use = occupancy(result.spans, cluster, float(result.end_s.max()))
    assert (use.gpus * use.lasts_s).sum() * 16 == pytest.approx(result.busy_gpu_s)
    assert min(use.gpus.min(), use.nodes.min()) >= 0 <= 1 >= max(use.gpus.max(), use.nodes.max())
    held = use.lasts_s > 0
    assert ((use.gpus > 0) == (use.nodes > 0))[held].all()
    assert (use.nodes * 3 * 8 >= use.gpus * 16 - 1e-9)[held].all()
