"""The layers of well-known models, from the shapes that their papers give: parameters, work and activations of each.

A layer here is what has parameters of its own; normalisation, activation and pooling count to the one before. What a
step costs, `compute` and `overlap` make of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

import numpy as np

from perdure.throughput.speed import Floats


@dataclass(frozen=True, slots=True)
class Layers:
    """A model's layers in forward order; all arrays have (n_layers,)."""

    name: str
    parameters: Floats
    flops: Floats  # of the forward pass of one example; a multiplication and an addition are two
    activations: Floats  # elements that the forward pass of one example writes, with what normalises them
    file_batch: int | None = None  # that the file they were read from holds; 0 where it leaves it open

    @property
    def total_parameters(self) -> int:
        return int(self.parameters.sum())


Row = tuple[float, float, float]


def _conv(inputs: int, outputs: int, kernel: int, size: int, groups: int = 1, normalised: bool = True) -> Row:
    """A convolution whose output is `size` x `size`; where it is normalised, it has no bias."""
    weights = inputs // groups * outputs * kernel * kernel
    written = outputs * size * size
    extra = 2 * outputs if normalised else outputs
    return weights + extra, 2.0 * weights * size * size, written * (3.0 if normalised else 2.0)


def _dense(inputs: int, outputs: int) -> Row:
    return inputs * outputs + outputs, 2.0 * inputs * outputs, 2.0 * outputs


def _resnet(blocks: tuple[int, ...], bottleneck: bool, width: int = 64, groups: int = 1) -> Iterator[Row]:
    """K. He et al., "Deep residual learning", CVPR 2016, table 1; 224 x 224 pixels, 1,000 classes.

    `width` is that of the first bottleneck (128 in the wide ones), `groups` those of ResNeXt.
    """
    yield _conv(3, 64, 7, 112)
    inputs, expansion = 64, 4 if bottleneck else 1
    for stage, count in enumerate(blocks):
        size, outputs = 56 >> stage, 64 * expansion << stage
        inner = width << stage
        for block in range(count):
            if bottleneck:
                first = size * 2 if stage and not block else size
                yield _conv(inputs, inner, 1, first)
                yield _conv(inner, inner, 3, size, groups)
                yield _conv(inner, outputs, 1, size)
            else:
                yield _conv(inputs, inner, 3, size)
                yield _conv(inner, inner, 3, size)
            if inputs != outputs:
                yield _conv(inputs, outputs, 1, size)
            inputs = outputs
    yield _dense(inputs, 1000)


def _vgg(convolutions: tuple[int, ...], normalised: bool = False) -> Iterator[Row]:
    """K. Simonyan and A. Zisserman, "Very deep convolutional networks", ICLR 2015, table 1."""
    inputs = 3
    for stage, count in enumerate(convolutions):
        outputs, size = min(64 << stage, 512), 224 >> stage
        for _ in range(count):
            parameters, flops, written = _conv(inputs, outputs, 3, size, normalised=normalised)
            yield parameters + (outputs if normalised else 0), flops, written  # torchvision keeps the bias
            inputs = outputs
    yield from (_dense(512 * 49, 4096), _dense(4096, 4096), _dense(4096, 1000))


def _alexnet() -> Iterator[Row]:
    """A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014: one column of AlexNet."""
    shapes = ((3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13))
    yield from (_conv(*shape, normalised=False) for shape in shapes)
    yield from (_dense(256 * 36, 4096), _dense(4096, 4096), _dense(4096, 1000))


def _transformer(layers: int, width: int, words: int, vocabulary: int, positions: int, tied: bool) -> Iterator[Row]:
    """A. Vaswani et al., "Attention is all you need", NeurIPS 2017; feed-forward layers are four times as wide.

    An example is a text of `words` words. Where the output is `tied` to the embedding, its weights are sent once.
    """
    yield (vocabulary + positions) * width, 0.0, 2.0 * words * width
    for _ in range(layers):
        projected = 4 * width * width + 4 * width
        yield (
            projected + 2 * width,
            2.0 * words * 4 * width * width + 4.0 * words * words * width,
            words * width * 6.0 + 2.0 * words * words * max(1, width // 64),
        )
        yield 8 * width * width + 5 * width + 2 * width, 2.0 * words * 8 * width * width, words * width * 10.0
    yield (0 if tied else vocabulary * width), 2.0 * words * width * vocabulary, 2.0 * words * vocabulary


_MAKERS: Mapping[str, Callable[[], Iterator[Row]]] = MappingProxyType(
    {
        "alexnet": _alexnet,
        **{f"vgg{n}": partial(_vgg, each) for n, each in (
            (11, (1, 1, 2, 2, 2)), (13, (2, 2, 2, 2, 2)), (16, (2, 2, 3, 3, 3)), (19, (2, 2, 4, 4, 4)))},
        **{f"vgg{n}_bn": partial(_vgg, each, True) for n, each in (
            (11, (1, 1, 2, 2, 2)), (13, (2, 2, 2, 2, 2)), (16, (2, 2, 3, 3, 3)), (19, (2, 2, 4, 4, 4)))},
        "resnet18": partial(_resnet, (2, 2, 2, 2), False),
        "resnet34": partial(_resnet, (3, 4, 6, 3), False),
        "resnet50": partial(_resnet, (3, 4, 6, 3), True),
        "resnet101": partial(_resnet, (3, 4, 23, 3), True),
        "resnet152": partial(_resnet, (3, 8, 36, 3), True),
        "wide_resnet50_2": partial(_resnet, (3, 4, 6, 3), True, 128),
        "wide_resnet101_2": partial(_resnet, (3, 4, 23, 3), True, 128),
        "resnext50_32x4d": partial(_resnet, (3, 4, 6, 3), True, 128, 32),
        "resnext101_32x8d": partial(_resnet, (3, 4, 23, 3), True, 256, 32),
        "bert-base": partial(_transformer, 12, 768, 128, 30522, 514, True),
        "bert-large": partial(_transformer, 24, 1024, 128, 30522, 514, True),
        "gpt2": partial(_transformer, 12, 768, 1024, 50257, 1024, True),
        "gpt2-medium": partial(_transformer, 24, 1024, 1024, 50257, 1024, True),
        "gpt2-xl": partial(_transformer, 48, 1600, 1024, 50257, 1024, True),
    }
)  # fmt: skip

KNOWN_MODELS: tuple[str, ...] = tuple(sorted(_MAKERS))


@cache
def layers_of(model: str) -> Layers:
    """The layers of a model of `KNOWN_MODELS`.

    >>> layers_of("resnet50").total_parameters  # as torchvision counts them
    25557032
    """
    columns = np.array(list(_MAKERS[model]()), float).T
    return Layers(model, *columns)
