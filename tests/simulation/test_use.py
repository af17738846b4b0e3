"""How many GPUs jobs held over time, and how much of a cluster was in use, tick by tick."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.cluster import Cluster
from perdure.model.table import JobTable
from perdure.simulation.fairness import jain, mean_present
from perdure.simulation.occupancy import occupancy
from perdure.simulation.result import SpanLog
from perdure.simulation.simulate import simulate
from perdure.simulation.steady import window_of
from perdure.simulation.use import DAY_S, attempts_held, day_edges, held_gpu_s, stretches, use_over_time
from tests.simulation.tables import jobs, tables

CLUSTER = Cluster.parse("2x4")
SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 15), st.integers(1, 4)), max_size=8)
POLICIES = st.sampled_from(["fifo", "srtf", "las-2d"])


def by_second(spans: list[tuple[int, int, int]], until: int) -> np.ndarray:
    """From ``(begin, length, gpus)``: GPUs that are held in each second."""
    held = np.zeros(until, np.int64)
    for begin, length, gpus in spans:
        held[begin : begin + length] += gpus
    return held


@settings(max_examples=50)
@given(SPANS, st.sets(st.integers(0, 40), min_size=2))
def test_gpu_seconds_are_those_of_each_second(spans: list[tuple[int, int, int]], at: set[int]) -> None:
    edges = np.array(sorted(at), np.float64)
    begin, length, gpus = np.array(spans, np.float64).reshape(-1, 3).T
    found = held_gpu_s((np.arange(len(begin)), begin, begin + length, gpus), edges)
    held, borders = by_second(spans, 41), sorted(at)
    wanted = [held[low:high].sum() for low, high in pairwise(borders)]
    assert found.tolist() == pytest.approx(wanted)


@settings(max_examples=30, deadline=None)
@given(tables(max_gpus=8), POLICIES)
def test_spans_and_attempts_hold_what_was_busy_and_never_more_than_there_is(table: JobTable, policy: str) -> None:
    result = simulate(table, CLUSTER, policy, spans=True)
    end = float(result.end_s.max())
    whole = np.array([0.0, end + 1])
    for held in (stretches(table.gpus, result), attempts_held(table.gpus, result)):
        assert held_gpu_s(held, whole)[0] == pytest.approx(result.busy_gpu_s)
    edges = np.arange(0.0, end + 2)
    held_s = held_gpu_s(stretches(table.gpus, result), edges)
    assert (held_s <= CLUSTER.total_gpus + 1e-9).all()
    assert use_over_time(table, result, edges) == pytest.approx(held_s / CLUSTER.total_gpus)


@settings(max_examples=30, deadline=None)
@given(tables(max_gpus=8), st.sampled_from(["first-fit", "best-fit"]))
def test_a_cluster_is_as_full_as_the_jobs_on_its_nodes(table: JobTable, placement: str) -> None:
    result = simulate(table, CLUSTER, "fifo", placement, spans=True)
    spans, until = result.spans, int(result.end_s.max())
    assert spans is not None
    found = occupancy(spans, CLUSTER, float(until))
    gpus, nodes = np.zeros(until + 1), np.zeros((until + 1, len(CLUSTER)))
    for begin, end, shares in zip(spans.start_s, spans.end_s, spans.shares, strict=True):
        for node, many in shares:
            gpus[int(begin) : int(end)] += many
            nodes[int(begin) : int(end), node] += many
    first = int(spans.start_s.min())
    then = slice(first, until)
    assert found.lasts_s.sum() == until - first
    if until > first:
        assert found.mean_gpus() == pytest.approx(gpus[then].mean() / CLUSTER.total_gpus)
        assert found.mean_nodes() == pytest.approx((nodes[then] > 0).mean())
        assert found.free_nodes_while(0.0, 1.0) == pytest.approx(1 - found.mean_nodes())
    assert ((found.gpus >= 0) & (found.gpus <= found.nodes + 1e-9)).all()  # nodes are of one size


def test_occupancy_by_hand_is_cut_where_it_is_asked_to_end() -> None:
    """Two GPUs of node 0 from 0 to 10, and four of node 1 from 5 to 20, of which 5 to 15 count."""
    row = np.arange(2)
    spans = SpanLog(row, row + 1, np.array([0.0, 5.0]), np.array([10.0, 20.0]), (((0, 2),), ((1, 4),)))
    found = occupancy(spans, CLUSTER, 15.0)
    assert found.lasts_s.tolist() == [5, 5, 5, 0]
    assert found.gpus.tolist() == [2 / 8, 6 / 8, 4 / 8, 0]
    assert found.nodes.tolist() == [0.5, 1.0, 0.5, 0]
    assert found.mean_gpus() == 0.5
    assert found.free_nodes_while(0.2, 0.6) == 0.5
    assert np.isnan(found.free_nodes_while(0.9, 1.0))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 15)), min_size=1, max_size=8))
def test_who_is_there_is_counted_second_by_second(there: list[tuple[int, int]]) -> None:
    since, length = np.array(there, np.float64).T
    present = by_second([(begin, lasts, 1) for begin, lasts in there], 40)
    wanted = [present[begin : begin + lasts].mean() for begin, lasts in there]
    assert mean_present(since, since + length).tolist() == pytest.approx(wanted)


def test_who_is_there_for_no_time_counts_as_alone() -> None:
    assert mean_present(np.array([3.0, 0.0]), np.array([3.0, 9.0])).tolist() == [1.0, 1.0]
    assert mean_present(np.zeros(0), np.zeros(0)).tolist() == []


@given(st.lists(st.integers(0, 100), min_size=1, max_size=9), st.integers(1, 9))
def test_jains_index_is_between_that_of_one_and_of_all_and_has_no_unit(got: list[int], unit: int) -> None:
    found = jain(np.array(got, np.float64))
    assert 1 / len(got) - 1e-12 <= found <= 1 + 1e-12
    assert jain(np.array(got, np.float64) * unit) == pytest.approx(found)
    assert jain(np.array(sorted(got), np.float64)) == pytest.approx(found)
    assert jain(np.array([5.0] + [0.0] * (len(got) - 1))) == pytest.approx(1 / len(got))


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_days_are_parted_at_midnight_in_utc(began: int, first: int, lasts: int) -> None:
    table = jobs((1, first, 1), began_s=float(began))
    until = float(first + lasts)
    day, edges = day_edges(table, until)
    assert (edges[0], edges[-1]) == (first, until)
    assert (np.diff(edges) > 0).all()
    assert ((edges[1:-1] + began) % DAY_S == 0).all()
    assert (np.diff(edges) <= DAY_S).all()
    assert day == (began + first) // DAY_S
    assert len(edges) - 1 == np.ceil((began + until) / DAY_S) - day


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(1, 8))
def test_the_window_lies_between_the_submits_and_its_load_is_what_is_asked_for(table: JobTable, gpus: int) -> None:
    found = window_of(table, gpus)
    if found is None:
        return
    assert table.submit_s[0] == found.first_s <= found.since_s < found.until_s == table.submit_s[-1]
    there = (found.until_s - found.first_s) * gpus
    assert found.load * there == pytest.approx(float(table.gpus @ table.duration_s))
    assert window_of(table, 2 * gpus).load == pytest.approx(found.load / 2)
    result = simulate(table, Cluster.parse("2x8"), "fifo")
    assert 0 <= found.used(table, result) <= 1 + 1e-9
    assert f"Jobs ask for {found.load:.2f} of the GPU time" in found.says
