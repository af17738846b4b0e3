"""Layers of well-known models: as many parameters and operations as their papers and torchvision give."""

from dataclasses import replace

import numpy as np
import pytest

from perdure.throughput.compute import GPUS, Efficiency, passes_on
from perdure.throughput.layers import KNOWN_MODELS, layers_of

# Parameters as torchvision's documentation gives them, and GFLOPS of its multiplications.
PUBLISHED = {
    "alexnet": (61_100_840, 0.71),
    "vgg11": (132_863_336, 7.61),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.63),
    "vgg16_bn": (138_365_992, 15.47),
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "wide_resnet50_2": (68_883_240, 11.40),
    "wide_resnet101_2": (126_886_696, 22.75),
    "resnext50_32x4d": (25_028_904, 4.23),
    "resnext101_32x8d": (88_791_336, 16.41),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_model_has_the_published_parameters_and_operations(model: str) -> None:
    parameters, giga = PUBLISHED[model]
    layers = layers_of(model)
    assert layers.total_parameters == parameters
    assert layers.flops.sum() / 2e9 == pytest.approx(giga, abs=0.006)


@pytest.mark.parametrize(
    ("model", "millions"), [("bert-base", 109), ("bert-large", 334), ("gpt2", 124), ("gpt2-xl", 1558)]
)
def test_a_transformer_has_as_many_parameters_as_its_paper_says(model: str, millions: int) -> None:
    assert layers_of(model).total_parameters / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("model", KNOWN_MODELS)
def test_larger_batches_and_slower_gpus_take_longer(model: str) -> None:
    layers = layers_of(model)
    taken = [passes_on(layers, GPUS["v100"], batch).total_s for batch in (1, 8, 64)]
    assert taken == sorted(taken)
    assert taken[2] < 64 * taken[0]  # starting kernels is shared
    assert passes_on(layers, GPUS["k80"], 64).total_s > taken[2] > passes_on(layers, GPUS["h100"], 64).total_s


def test_a_layer_takes_the_longer_of_arithmetic_and_memory() -> None:
    layers, v100 = layers_of("alexnet"), replace(GPUS["v100"], pace=1.0)
    free = Efficiency(arithmetic=1.0, memory=1e9, launch_s=0.0)
    assert passes_on(layers, v100, 4, free).total_s == pytest.approx(3 * layers.flops.sum() * 4 / 14e12)
    launched = Efficiency(arithmetic=1e9, memory=1e9, launch_s=0.001)
    assert passes_on(layers, v100, 4, launched).total_s == pytest.approx(3 * 0.001 * len(layers.flops))


def test_a_measured_step_is_kept_and_its_layers_in_proportion() -> None:
    estimate = passes_on(layers_of("resnet18"), GPUS["t4"], 16)
    measured = estimate.calibrated(0.25)
    assert measured.total_s == pytest.approx(0.25)
    assert np.allclose(measured.backward / measured.forward, estimate.backward / estimate.forward)


def test_a_gpu_that_was_measured_has_its_own_pace() -> None:
    layers, k80 = layers_of("resnet18"), GPUS["k80"]
    by_data_sheet = passes_on(layers, replace(k80, pace=1.0), 16).total_s
    assert passes_on(layers, k80, 16).total_s == pytest.approx(k80.pace * by_data_sheet)
    assert GPUS["t4"].pace == 1.0  # nobody measured it
