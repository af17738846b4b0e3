"""What `perdure speed` says of one setting: measured passes, intervals, break-evens, incast, and what bounds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perdure.throughput.collectives import GpuLayout, Transport
from perdure.throughput.compute import GPUS, TRUE_TO_ESTIMATED, TRUE_TO_PACED, passes_on
from perdure.throughput.incast import incast
from perdure.throughput.layers import layers_of
from perdure.throughput.training_speed import (
    WORTH,
    TrainingSetting,
    batch_without_gain,
    gain_of_rdma,
    incast_of,
    prior_from,
    rate_wanted,
    speed_of,
    step_with,
)

ALONE = TrainingSetting(layers_of("vgg19"), GPUS["v100"], 64, GpuLayout(1), 100.0, Transport.RDMA)
MANY = replace(ALONE, layout=GpuLayout(16), batch=16)


def test_a_step_measured_with_another_batch_is_taken_in_proportion() -> None:
    estimate = {batch: passes_on(ALONE.layers, ALONE.gpu, batch).total_s for batch in (32, 64)}
    passes = replace(ALONE, measured_s=0.1, measured_batch=32).passes
    assert passes.total_s == pytest.approx(0.1 * estimate[64] / estimate[32])


@pytest.mark.parametrize(("gpu", "ends"), [("l4", TRUE_TO_ESTIMATED), ("v100", TRUE_TO_PACED)])
def test_a_gpu_that_nobody_measured_has_the_wider_interval(gpu: str, ends: tuple[float, float]) -> None:
    found = speed_of(replace(ALONE, gpu=GPUS[gpu]))
    assert (found.low_s / found.step.step_s, found.high_s / found.step.step_s) == pytest.approx(ends)


def test_the_wanted_rate_is_the_least_that_scales_so_far() -> None:
    rate = rate_wanted(MANY)
    assert rate is not None
    at, below = (step_with(replace(MANY, rate_gbit=each)).efficiency for each in (rate, 0.98 * rate))
    assert below < 0.95 <= at
    assert rate_wanted(replace(MANY, transport=Transport.TCP)) is None


def test_rdma_is_worth_it_just_below_the_break_even_batch() -> None:
    batch = batch_without_gain(MANY)
    assert batch is not None
    assert gain_of_rdma(replace(MANY, batch=batch)) <= WORTH < gain_of_rdma(replace(MANY, batch=batch - 1))


def test_a_server_is_sent_its_share_of_all_nodes_gradients_at_once() -> None:
    few = replace(MANY, servers=4, rate_gbit=400.0)
    found = incast_of(few)
    assert found is not None
    link = few.to_servers.bytes_per_s
    burst_s = few.layers.total_parameters * 4 * 16 / 4 / link
    assert len(found.queue) * 1e-6 == pytest.approx(burst_s, rel=1e-4)
    assert found.queue_bytes == incast(16, link, duration_s=burst_s).queue_bytes
    assert incast_of(replace(few, transport=Transport.TCP)) is None


def test_layers_tell_a_fit_how_long_synchronising_takes() -> None:
    within = [prior_from(replace(MANY, layers=layers_of(model))).inside_s for model in ("resnet18", "vgg19")]
    assert within[0] is not None
    assert within[1] is not None
    assert within[1] > 2 * within[0]


def test_layers_on_a_slower_network_tell_that_nodes_synchronise_slower() -> None:
    slow, fast = (prior_from(replace(MANY, rate_gbit=rate)).mean[2] for rate in (10.0, 400.0))
    assert slow > fast + np.log(2)


@pytest.mark.parametrize(
    ("layout", "batch", "said"),
    [
        (GpuLayout(1), 64, "computing"),
        (GpuLayout(1, 2), 256, "computing: pcie within the node keeps up"),
        (GpuLayout(4), 256, "computing: the network keeps up"),
        (GpuLayout(1, 8), 1, "pcie within the node: GPUs wait "),
        (GpuLayout(4), 1, "the network: GPUs wait "),
    ],
)
def test_what_bounds_a_step_is_said_of_what_is_there(layout: GpuLayout, batch: int, said: str) -> None:
    assert speed_of(replace(ALONE, layout=layout, batch=batch)).bottleneck.startswith(said)


def test_narrow_uplinks_of_racks_slow_an_all_reduce_as_much_as_they_are_narrower() -> None:
    size = np.array(1e10)  # so that latency is nothing
    wide = TrainingSetting(layers_of("resnet50"), GPUS["v100"], 32, GpuLayout(8, racks=2), 100.0, Transport.RDMA)
    narrow = replace(wide, oversubscription=8.0)
    assert narrow.all_reduce_s(size) / wide.all_reduce_s(size) == pytest.approx(2.0, rel=1e-3)
