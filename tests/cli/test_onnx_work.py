"""Operations of ONNX operators, against sums over the loops that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from perdure.cli.onnx_work import WORK

Shape = tuple[int, ...]
CASES: list[tuple[str, list[Shape], Shape, Mapping[str, Any], int]] = [
    ("Conv", [(2, 6, 8, 8), (10, 3, 5, 5)], (2, 10, 4, 4), {}, 2 * (2 * 10 * 4 * 4) * (3 * 5 * 5)),  # two groups
    ("QLinearConv", [(1, 3, 8, 8), (), (), (4, 3, 3, 3)], (1, 4, 6, 6), {}, 2 * (4 * 6 * 6) * (3 * 3 * 3)),
    ("ConvTranspose", [(1, 4, 6, 6), (4, 3, 3, 3)], (1, 3, 8, 8), {}, 2 * (4 * 6 * 6) * (3 * 3 * 3)),
    ("Gemm", [(5, 7), (7, 3)], (5, 3), {}, 2 * 5 * 7 * 3),
    ("Gemm", [(7, 5), (7, 3)], (5, 3), {"transA": 1}, 2 * 5 * 7 * 3),
    ("Gemm", [(5, 7), (3, 7)], (5, 3), {"transB": 1}, 2 * 5 * 7 * 3),
    ("MatMul", [(4, 5, 7), (7, 3)], (4, 5, 3), {}, 2 * 4 * 5 * 7 * 3),
    ("LSTM", [(9, 2, 5), (1, 4 * 6, 5), (1, 4 * 6, 6)], (9, 1, 2, 6), {}, 2 * 9 * 2 * (4 * 6 * 5 + 4 * 6 * 6)),
    ("Attention", [(2, 4, 8), (2, 6, 8), (2, 6, 16)], (2, 4, 16), {}, 2 * (2 * 4 * 8 + 2 * 4 * 16) * 6),
    ("Attention", [(2, 4, 8), (2, 6, 8), (2, 6, 8), (), (2, 3, 8)], (2, 4, 8), {}, 2 * (2 * 2 * 4 * 8) * (6 + 3)),
    ("Attention", [(2, 4, 8), (2, 6, 8), (2, 6, 8), (), ()], (2, 4, 8), {}, 2 * (2 * 2 * 4 * 8) * 6),
    ("Einsum", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), {"equation": b"bij,bjk->bik"}, 2 * 2 * 3 * 4 * 5),
    ("Einsum", [(3, 4), (4, 5)], (3, 5), {"equation": b"ij, jk"}, 2 * 3 * 4 * 5),
    ("Einsum", [(7, 3, 4), (7, 4, 5)], (7, 3, 5), {"equation": b"...ij,...jk->...ik"}, 2 * 7 * 3 * 4 * 5),
    ("Einsum", [(3, 4)], (4, 3), {"equation": b"ij->ji"}, 0),
]


@pytest.mark.parametrize(("operator", "inputs", "out", "attributes", "operations"), CASES)
def test_a_multiplication_and_an_addition_are_two(
    operator: str, inputs: list[Shape], out: Shape, attributes: Mapping[str, Any], operations: int
) -> None:
    assert WORK[operator](inputs, out, attributes) == operations


def test_a_product_of_three_is_refused() -> None:
    with pytest.raises(ValueError, match="more than two"):
        WORK["Einsum"]([(2,), (2,), (2,)], (), {"equation": b"i,i,i->"})
