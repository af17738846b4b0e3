"""Collectives and overlap: closed forms, limits, and what holds of any of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.throughput.collectives import (
    GBIT,
    INSIDE,
    TCP_MOST,
    GpuLayout,
    GpuLink,
    Transport,
    all_reduce_s,
    between_nodes,
    network,
    ring_s,
    servers_s,
    slowed_by_racks,
    tree_s,
)
from perdure.throughput.compute import GPUS, PassTimes, passes_on
from perdure.throughput.layers import Layers, layers_of
from perdure.throughput.overlap import buckets_of, step_of
from perdure.throughput.speed import Floats

SLOW = GpuLink(1e-5, 1e9)
TWO = Layers("two", np.array([1e6, 3e6]), np.ones(2), np.ones(2))  # 4 MB and 12 MB of gradients


def test_a_ring_sends_each_byte_almost_twice() -> None:
    assert float(ring_s(1e9, 4, SLOW)) == pytest.approx(6e-5 + 1.5)
    assert float(ring_s(1e9, 1, SLOW)) == 0.0
    assert float(tree_s(1e9, 1, SLOW)) == 0.0
    assert float(tree_s(0.0, 8, SLOW)) == pytest.approx(6e-5)


def test_many_workers_on_few_servers_queue_for_them() -> None:
    assert float(servers_s(1e9, 8, 2, SLOW)) == pytest.approx(2e-5 + 8.0)
    assert float(servers_s(1e9, 8, 8, SLOW)) == pytest.approx(2e-5 + 2.0)
    assert float(servers_s(1e9, 8, 8, SLOW, partitioned=True)) == pytest.approx(2e-5 + 1.0)  # both ways at once
    assert float(servers_s(1e9, 4, 4, SLOW, shared=True)) == pytest.approx(2e-5 + 1.5)  # as a ring of four


@given(st.floats(1, 1e9), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]))
def test_an_all_reduce_is_never_slower_than_one_ring_over_the_slowest_link(size: float, nodes: int, each: int) -> None:
    layout, between = GpuLayout(nodes, each), network(100, Transport.RDMA)
    slowest = GpuLink(
        max(between.latency_s, INSIDE["pcie"].latency_s), min(between.bytes_per_s, INSIDE["pcie"].bytes_per_s)
    )
    taken = float(all_reduce_s(size, layout, INSIDE["pcie"], between))
    one_gpu = each == 1 or nodes == 1
    bound = float(ring_s(size, layout.gpus, slowest))
    assert taken <= (bound if one_gpu else 2 * bound) * (1 + 1e-12)


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=5), st.integers(2, 32))
def test_more_bytes_take_longer(sizes: list[float], nodes: int) -> None:
    taken = all_reduce_s(np.sort(sizes), GpuLayout(nodes, 4), INSIDE["nvlink"], network(25, Transport.TCP))
    assert (np.diff(taken) >= 0).all()


def test_tcp_gets_no_more_than_its_most_from_a_fast_link() -> None:
    assert network(400, Transport.TCP).bytes_per_s == network(100, Transport.TCP).bytes_per_s
    assert network(10, Transport.TCP).bytes_per_s == pytest.approx(0.75 * 1.25e9)


def passes(forward: list[float], backward: list[float]) -> PassTimes:
    return PassTimes(np.array(forward), np.array(backward))


def at_rate(sizes: Floats) -> Floats:
    return sizes / 16e6


def test_a_bucket_is_sent_while_earlier_layers_still_compute() -> None:
    """Last layer first: 12 MB are ready at 1.5 s and take .75 s, 4 MB are ready at 2 s and take .25 s."""
    assert [part.stop for part in buckets_of(TWO, 4e6)] == [1, 2]
    step = step_of(TWO, passes([0.5, 0.5], [0.5, 0.5]), at_rate, bucket_bytes=4e6)
    assert step.step_s == pytest.approx(1.5 + 0.75 + 0.25)
    assert (step.compute_s, step.communication_s) == (2.0, 1.0)
    assert step.exposed_s == pytest.approx(0.5)
    assert step.efficiency == pytest.approx(0.8)


def test_with_priorities_the_tail_hides_behind_the_next_forward_pass() -> None:
    both = passes([0.5, 0.5], [0.5, 0.5])
    assert step_of(TWO, both, at_rate, bucket_bytes=4e6, priorities=True).step_s == pytest.approx(2.0)
    assert step_of(TWO, both, lambda s: 4 * at_rate(s), 4e6, True).step_s == pytest.approx(1.5 + 4.0 - 1.0)


@pytest.mark.parametrize("model", ["resnet50", "vgg16", "bert-large"])
def test_a_step_is_between_perfect_overlap_and_none(model: str) -> None:
    layers = layers_of(model)
    both = passes_on(layers, GPUS["v100"], 32)

    def send(sizes: Floats) -> Floats:
        return all_reduce_s(sizes, GpuLayout(16), INSIDE["pcie"], network(25, Transport.TCP))

    step = step_of(layers, both, send)
    assert max(step.compute_s, step.communication_s) <= step.step_s <= step.compute_s + step.communication_s
    assert step_of(layers, both, lambda s: 0 * s).step_s == pytest.approx(both.total_s)
    sent = sum(layers.parameters[::-1][part].sum() for part in buckets_of(layers))
    assert sent == layers.total_parameters


def test_racks_slow_a_ring_by_their_uplink_only_where_a_nodes_link_is_more() -> None:
    two = GpuLayout(16, racks=2)
    assert slowed_by_racks(GpuLayout(16), 4.0) == slowed_by_racks(two, 4.0) == 1
    assert slowed_by_racks(two, 16.0) == pytest.approx(2)
    assert slowed_by_racks(two, 4.0, all_to_all=True) == pytest.approx(2)
    assert slowed_by_racks(two, 1.0, all_to_all=True) == 1


def test_short_uplinks_slow_tcp_only_where_they_give_less_than_it_takes() -> None:
    two = GpuLayout(16, racks=2)
    assert between_nodes(100, Transport.TCP, two, 16.0).bytes_per_s == TCP_MOST  # 37.5 of the uplink
    assert between_nodes(100, Transport.RDMA, two, 16.0).bytes_per_s == pytest.approx(46 * GBIT)
    near, far = (between_nodes(100, Transport.RDMA, GpuLayout(16, racks=racks), 1.0) for racks in (1, 2))
    assert far.latency_s > near.latency_s


@pytest.mark.parametrize(("members", "hops"), [(2, 2), (3, 4), (4, 4), (5, 6)])
def test_a_tree_is_as_deep_as_its_members_need(members: int, hops: int) -> None:
    assert float(tree_s(0.0, members, GpuLink(1.0, 1e9))) == hops


def test_each_gpu_of_a_node_sends_its_share_across_nodes() -> None:
    at_once = GpuLink(0.0, np.inf)
    assert float(all_reduce_s(8e9, GpuLayout(2, 4), at_once, GpuLink(0.0, 1e9))) == pytest.approx(2.0)


def test_a_bucket_is_sent_once_its_last_layer_is_done() -> None:
    layers = Layers("two", np.full(2, 10.0), np.ones(2), np.ones(2))
    passes = PassTimes(np.zeros(2), np.array([5.0, 1.0]))
    assert step_of(layers, passes, lambda size: np.ones_like(size)).step_s == pytest.approx(7.0)
