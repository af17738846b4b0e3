"""How many operations an ONNX operator's forward pass takes; a multiplication and an addition are two.

As PyTorch counts them (`torch.utils.flop_counter`): convolutions, products of matrices and attention; what normalises,
adds or activates does not count. With `out` elements of the result:

    convolution     2 out W / M                  W weights, M channels of the result
    product         2 out K                      K numbers added up for each
    recurrent       2 T N (W + R)                T steps, N examples, weights of inputs W and of the state R
    attention       2 (Q + out) S                Q elements of the queries, S keys

Source: the operators' definitions in ONNX, https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

Shape = tuple[int, ...]
Shapes = Sequence[Shape]  # of the inputs, one that is not given as ()
Attributes = Mapping[str, Any]


def _convolution(weights: int) -> Callable[[Shapes, Shape, Attributes], int]:
    return lambda inputs, out, _attributes: 2 * prod(out) * prod(inputs[weights][1:])


def _transposed(inputs: Shapes, _out: Shape, _attributes: Attributes) -> int:
    return 2 * prod(inputs[0]) * prod(inputs[1][1:])


def _gemm(inputs: Shapes, out: Shape, attributes: Attributes) -> int:
    return 2 * prod(out) * inputs[0][0 if attributes.get("transA") else 1]


def _product(inputs: Shapes, out: Shape, _attributes: Attributes) -> int:
    return 2 * prod(out) * inputs[0][-1]


def _recurrent(inputs: Shapes, _out: Shape, _attributes: Attributes) -> int:
    return 2 * prod(inputs[0][:2]) * (prod(inputs[1]) + prod(inputs[2]))


def _attention(inputs: Shapes, out: Shape, _attributes: Attributes) -> int:
    return 2 * (prod(inputs[0]) + prod(out)) * (inputs[1][-2] + (inputs[4][-2] if len(inputs) > 4 and inputs[4] else 0))


def _einsum(inputs: Shapes, out: Shape, attributes: Attributes) -> int:
    """Of two factors; of one there is nothing to multiply. Without ``->``, the result has what stands there once."""
    left, arrow, right = attributes["equation"].decode().replace(" ", "").partition("->")
    terms = [term.replace("...", "") for term in left.split(",")]
    if len(terms) == 1:
        return 0
    if len(terms) > 2:
        raise ValueError("it is a product of more than two")
    right = right if arrow else "".join(letter for letter in left if left.count(letter) == 1)
    ends = (zip(reversed(term), reversed(shape), strict=False) for term, shape in zip(terms, inputs, strict=True))
    sizes = {letter: size for pairs in ends for letter, size in pairs}
    return 2 * prod(out) * prod(size for letter, size in sizes.items() if letter not in right)


WORK: Mapping[str, Callable[[Shapes, Shape, Attributes], int]] = MappingProxyType(
    {
        "Attention": _attention,
        "Conv": _convolution(1),
        "ConvInteger": _convolution(1),
        "ConvTranspose": _transposed,
        "DeformConv": _convolution(1),
        "Einsum": _einsum,
        "GRU": _recurrent,
        "Gemm": _gemm,
        "LSTM": _recurrent,
        "MatMul": _product,
        "MatMulInteger": _product,
        "QLinearConv": _convolution(3),
        "QLinearMatMul": _product,
        "RNN": _recurrent,
    }
)
"""Operations by the name of an operator of ONNX's own domain; those that are not here take none that count."""
