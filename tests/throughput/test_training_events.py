"""A step by events, which shares no formula with the model: closed forms, and the same answer on RDMA."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.training_events import _ring, step_by_events
from perdure.throughput.collectives import GpuLayout, GpuLink, Transport, network
from perdure.throughput.compute import GPUS, PassTimes, passes_on
from perdure.throughput.layers import Layers, layers_of
from perdure.throughput.training_speed import WORTH, TrainingSetting, gain_of_rdma


def test_a_ring_of_nodes_that_are_ready_together_takes_its_closed_form() -> None:
    assert _ring(1e9, np.zeros(4), GpuLink(1e-5, 1e9)) == pytest.approx(6e-5 + 1.5)


def test_a_late_node_makes_all_wait() -> None:
    assert _ring(1e9, np.array([0.0, 0, 3, 0]), GpuLink(0.0, 1e9)).min() >= 3 + 0.75


def test_without_a_network_to_speak_of_the_slowest_node_sets_the_pace() -> None:
    one = Layers("one", np.array([1e6]), np.ones(1), np.ones(1))
    step = step_by_events(one, PassTimes(np.ones(1), np.ones(1)), 8, GpuLink(0.0, 1e15), np.random.default_rng(0))
    assert step == pytest.approx(2 * np.exp(0.03 * np.random.default_rng(0).standard_normal(8)).max())


@pytest.mark.parametrize("model", ["resnet50", "vgg19", "bert-base"])
def test_events_and_the_model_agree_whether_rdma_pays(model: str) -> None:
    layers, gpu = layers_of(model), GPUS["v100"]
    agreed = []
    for batch in (8, 32, 128):
        for nodes in (2, 16):
            tcp, rdma = (
                step_by_events(
                    layers, passes_on(layers, gpu, batch), nodes, network(100, each), np.random.default_rng(1)
                )
                for each in (Transport.TCP, Transport.RDMA)
            )
            setting = TrainingSetting(layers, gpu, batch, GpuLayout(nodes), 100.0, Transport.TCP)
            agreed.append((tcp / rdma > WORTH) == (gain_of_rdma(setting) > WORTH))
    assert np.mean(agreed) >= 5 / 6
